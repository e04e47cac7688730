"""From the address of a registry to the adapter that serves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from engine_registry.store import Stores

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HINT = "set ENGINECTL_REGISTRY=file:///absolute/directory"


def stores_at(url: str, clock: Callable[[], datetime]) -> Stores:
    """The ports of the registry at `url`; the adapter is loaded here.

    Raises:
        InvalidInput: an unknown scheme, a `file:` address that is not an absolute path, or a
            malformed `s3:` address.
    """
    if not url:
        raise InvalidInput(
            "no registry address given", hint=_HINT, reference="invalid-registry-address"
        )
    from engine_registry.backends.filesystem import file_stores

    if not _SCHEME.match(url):
        return file_stores(Path(url), clock)
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from engine_registry.backends.s3 import s3_stores

        return s3_stores(url, clock)
    if parts.scheme != "file":
        raise InvalidInput(
            f"registry {url!r}: unknown scheme {parts.scheme!r} (known: file, s3)",
            hint=_HINT,
            reference="unknown-registry-scheme",
        )
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not path.startswith("/") or parts.query:
        raise InvalidInput(
            f"registry {url!r}: not file:// and an absolute path",
            hint=_HINT,
            reference="invalid-registry-address",
        )
    return file_stores(Path(path), clock)
