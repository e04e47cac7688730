"""Taking what a writer has just named back out of the trash.

A garbage collection may discard an old engine at the very moment in which somebody releases it,
promotes it or attaches to it. Both sides then look again after they wrote: the collector at the
roots, the writer at what it named. At least one of them sees the other; this is the writer's half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.closure import Sight
from engine_registry.touched import Act

if TYPE_CHECKING:
    from engine_registry.digest import Digest
    from engine_registry.refs import ReleaseRef
    from engine_registry.store import Stores
    from engine_registry.touched import Touches


def rescue_engine(stores: Stores, touches: Touches, engine: Digest) -> int:
    """Restore whatever of an engine was discarded, in the order of writing; how many files."""
    names = list(dict.fromkeys(Sight(stores).engine(engine)))
    touches.note(engine, Act.RESTORED)
    return sum(stores.trash.restore(name) for name in names)


def rescue_release(stores: Stores, touches: Touches, ref: ReleaseRef, engine: Digest) -> int:
    """Restore whatever of a release and its engine was discarded; how many files."""
    count = rescue_engine(stores, touches, engine)
    return count + stores.trash.restore(layout.release(ref))
