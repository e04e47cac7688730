"""An endpoint that somebody else runs, to be asked as it is: never started, never stopped."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from engine_pipeline.gates.client import Endpoint
from engine_registry.errors import InvalidInput, Unavailable

_TIMEOUT_S = 10.0
_MAX_BYTES = 4 << 20


def external(base_url: str, model: str, *, api_key: str | None = None) -> Endpoint:
    """The endpoint at `base_url`, once it has said that it serves `model`.

    Args:
        base_url: with or without the final `/v1`.
        model: a name that its `/v1/models` lists.
        api_key: sent as bearer token; never written anywhere.

    Raises:
        InvalidInput: not an http or https address, or it serves other models.
        Unavailable: it does not answer, or not like this API.
    """
    root = base_url.rstrip("/").removesuffix("/v1")
    parts = urlsplit(root)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise InvalidInput(
            # Whatever stands before an @ may be a password.
            f"not the address of an endpoint: {base_url.rpartition('@')[2][:120]!r} "
            "(want http:// or https://, no user name)",
            hint="give scheme, host and port, as http://127.0.0.1:8000",
            reference="invalid-endpoint",
        )
    served = _served(root, api_key)
    if model not in served:
        raise InvalidInput(
            f"{root} serves {', '.join(sorted(served)) or 'no model'}, not {model!r}",
            hint="name one of them",
            reference="endpoint-other-model",
        )
    return Endpoint(base_url=root, model=model, api_key=api_key)


def _served(root: str, api_key: str | None) -> set[str]:
    parts = urlsplit(root)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key is not None else {}
    try:
        connection.request("GET", f"{parts.path}/v1/models", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _unavailable(root, f"/v1/models answers HTTP {response.status}, want 200")
        listing: dict[str, Any] = json.loads(response.read(_MAX_BYTES))
        return {str(item["id"]) for item in listing["data"]}
    except (OSError, http.client.HTTPException) as error:
        raise _unavailable(root, f"no answer: {type(error).__name__}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _unavailable(root, "/v1/models is not a list of models") from error
    finally:
        connection.close()


def _unavailable(root: str, what: str) -> Unavailable:
    return Unavailable(
        f"{root}: {what}",
        hint="check address, key and that the server is up, then run the command again",
        reference="endpoint-unavailable",
    )
