"""An endpoint that somebody else runs, to be asked as it is: never started, never stopped."""

from __future__ import annotations

import http.client
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.redact import masked
from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

# What RFC 6750 allows, and colons: it reads the same in JSON, in HTML and in an excerpt.
_KEY = re.compile(r"[A-Za-z0-9._~+/:=-]{8,1000}")
_KEY_REFUSED = frozenset({401, 403})
_NO_LIST = frozenset({404, 405, 501})
_TIMEOUT_S = 10.0
_MAX_BYTES = 4 << 20
_NAMED = 10


def root_of(base_url: str) -> str:
    """The address below which `/v1` lies."""
    return base_url.rstrip("/").removesuffix("/v1")


def key_of(name: str | None, environment: Mapping[str, str]) -> str | None:
    """The key in the environment variable `name`; None without a name.

    Raises:
        InvalidInput: the variable is not set, or holds no key; its value is never shown.
    """
    if name is None:
        return None
    value = environment.get(name, "").strip()
    if not value:
        raise InvalidInput(
            f"the key is to be in {name}, which is not set",
            hint=f"export {name}=…, or leave it out if the endpoint wants none",
            reference="api-key-missing",
        )
    if not _KEY.fullmatch(value):
        raise InvalidInput(
            f"{name} holds no key (not shown): want 8 or more letters, digits and . _ ~ + / : = -, "
            "which can be kept out of every report",
            hint="correct the variable, or leave it out if the endpoint wants none",
            reference="api-key-invalid",
        )
    return value


def external(base_url: str, model: str, *, api_key: str | None = None) -> Endpoint:
    """The endpoint at `base_url`, once it has said that it serves `model`, if it says so at all.

    Args:
        base_url: with or without the final `/v1`.
        model: a name that its `/v1/models` lists.
        api_key: sent as bearer token; never written anywhere.

    Raises:
        InvalidInput: not an http or https address, or it serves other models.
        Unavailable: it does not answer, or not like this API.
    """
    root = root_of(base_url)
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
    if served is not None and model not in served:
        raise InvalidInput(
            f"{root} serves {masked(_listed(served), api_key)}, not {model!r}",
            hint="name one of them",
            reference="endpoint-other-model",
        )
    return Endpoint(base_url=root, model=model, api_key=api_key)


def _served(root: str, api_key: str | None) -> set[str] | None:
    """The models that it lists; None if it has no such list, as some gateways do not."""
    parts = urlsplit(root)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key is not None else {}
    try:
        connection.request("GET", f"{parts.path}/v1/models", headers=headers)
        response = connection.getresponse()
        if response.status in _NO_LIST:
            return None
        if response.status in _KEY_REFUSED:
            raise InvalidInput(
                f"{root} refuses {'the key' if api_key else 'a request without a key'}: "
                f"HTTP {response.status}",
                hint="name the environment variable that holds the right key",
                reference="endpoint-key-refused",
            )
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


def _listed(served: set[str]) -> str:
    names = sorted(name[:100] for name in served)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) + more) or "no model"


def _unavailable(root: str, what: str) -> Unavailable:
    return Unavailable(
        f"{root}: {what}",
        hint="check address, key and that the server is up, then run the command again",
        reference="endpoint-unavailable",
    )
