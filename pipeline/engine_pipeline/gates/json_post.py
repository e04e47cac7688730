"""One JSON request to an endpoint and its JSON answer, or why there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.reply import ErrorKind, RequestError, one_line
from engine_pipeline.redact import masked

if TYPE_CHECKING:
    import aiohttp

_MAX_BODY_BYTES = 64 << 20
_SHOWN_BYTES = 2000


class NotAnswered(Exception):
    """A request without an answer. `refused` is the HTTP status if the server gave one.

    `engine_fault`: the server was reached and answered that it cannot, or not in this API.
    """

    def __init__(self, detail: str, *, refused: int | None = None, engine_fault: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.refused = refused
        self.engine_fault = engine_fault


async def post_json(
    session: aiohttp.ClientSession,
    base_url: str,
    path: str,
    body: dict[str, Any],
    *,
    timeout_s: float,
    secret: str | None = None,
) -> dict[str, Any]:
    """The object that the endpoint answers with; words of a refusal are told without `secret`.

    Raises:
        NotAnswered: with why; `timeout_s`, the session's, is named if it ran out.
    """
    import aiohttp

    try:
        async with session.post(f"{base_url}{path}", json=body, allow_redirects=False) as response:
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > _MAX_BODY_BYTES:
                    detail = f"{path}: more than {_MAX_BODY_BYTES} bytes"
                    raise NotAnswered(detail, engine_fault=True)
    except TimeoutError as error:
        detail = f"{path}: no whole answer within {timeout_s:g} s"
        raise NotAnswered(detail, engine_fault=False) from error
    except (aiohttp.ClientError, OSError) as error:
        detail = one_line(f"{path}: {type(error).__name__}: {error}")
        raise NotAnswered(detail, engine_fault=False) from error
    if response.status != 200:
        said = data[:_SHOWN_BYTES].decode(errors="replace")
        detail = one_line(f"{path}: HTTP {response.status}: {masked(said, secret)}")
        fault = RequestError(kind=ErrorKind.HTTP, status=response.status, detail=detail)
        raise NotAnswered(detail, refused=response.status, engine_fault=fault.engine_fault)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise not_this_api(error) from error
    if not isinstance(found, dict):
        raise not_this_api(TypeError(f"{type(found).__name__} where an object is wanted"))
    return found


def not_this_api(error: Exception) -> NotAnswered:
    """The endpoint answered something else than this API has it."""
    return NotAnswered(one_line(f"not an answer of this API: {error}"), engine_fault=True)
