"""The cache of engines on this node, wired to the registry, to deployments and to the environment.

On where `ENGINECTL_CACHE_LIMIT` says how much it may hold, for a registry that is not on the file
system of the cache itself: from there engines are linked into place anyway.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.targets.definition import Definition
    from engine_pipeline.targets.port import Deployment
    from engine_registry.backends.node_cache import NodeCache
    from engine_registry.materialise import Near

LIMIT = "ENGINECTL_CACHE_LIMIT"


def cache_limit() -> int | None:
    """How many bytes of engines this node keeps; None: no limit is set, and it keeps none.

    Raises:
        InvalidInput: reference `invalid-cache-limit`.
    """
    from engine_pipeline.cli.sizes import read_size

    text = os.environ.get(LIMIT, "").strip()
    if not text:
        return None
    try:
        return read_size(text)
    except ValueError as error:
        raise InvalidInput(
            f"{LIMIT}: {error}",
            hint=f"export {LIMIT}=200GB, or unset it to keep no engines",
            reference="invalid-cache-limit",
        ) from error


def node_cache(shell: Shell) -> NodeCache:
    """The cache on this node, with no room at all where no limit is set."""
    from engine_pipeline.cli.wiring import utc_now
    from engine_registry.backends.node_cache import NodeCache

    return NodeCache(shell.cache_dir / "engines", cache_limit() or 0, utc_now)


def near_cache(shell: Shell) -> NodeCache | None:
    """The cache that this registry's engines are laid out from; None where it is off."""
    if cache_limit() is None or _is_near(shell.registry_url, shell.cache_dir):
        return None
    return node_cache(shell)


def near(shell: Shell) -> Near:
    """Where this registry's engines are laid out from."""
    from engine_registry.materialise import from_the_store

    cache = near_cache(shell)
    return from_the_store if cache is None else cache.holding


def claiming(shell: Shell, definition: Definition) -> Callable[[Deployment], None]:
    """What notes, before a deployment begins, what this node keeps for it.

    That is what is deployed, and as many releases of the channel before it as the target keeps.
    """

    def claim(deployment: Deployment) -> None:
        from engine_registry.cache_plan import claim_of

        cache = near_cache(shell)
        if cache is None:
            return
        state = shell.registry.channels.state(definition.ref)
        cache.claim(
            claim_of(state, place=definition.path, earlier=definition.keep, at=deployment.at)
        )

    return claim


def _is_near(registry_url: str, cache_dir: Path) -> bool:
    """Whether the registry lies on the cache's own file system."""
    parts = urlsplit(registry_url)
    if parts.scheme not in {"", "file"}:
        return False
    return _device(Path(unquote(parts.path))) == _device(cache_dir)


def _device(path: Path) -> int:
    there = path.absolute()
    while not there.exists():
        there = there.parent
    return there.stat().st_dev
