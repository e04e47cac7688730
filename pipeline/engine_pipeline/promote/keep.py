"""Keep a release from garbage collection, or out of its trash; and let it go again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_registry.errors import NotFound
from engine_registry.rescue import rescue_release

if TYPE_CHECKING:
    from engine_pipeline.promote.moves import Desk
    from engine_registry.holds import ReleaseHold
    from engine_registry.record import Release
    from engine_registry.refs import ReleaseRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What became of a hold on a release.

    Attributes:
        hold: in force, or the end of it; None if there never was one.
        changed: whether this act changed it.
        restored_files: files that came back out of the trash.
    """

    release: Release
    hold: ReleaseHold | None
    changed: bool
    restored_files: int = 0


def hold_release(desk: Desk, ref: ReleaseRef, *, reason: str) -> Kept:
    """Keep a release until the hold is lifted; one that lies in the trash is put back first.

    Raises:
        NotFound: there is no such release, or it has been purged (`release-retired`).
        NotFound, IntegrityError: its bytes are not whole.
    """
    registry = desk.registry
    restored = 0
    try:
        release = registry.releases.release(ref)
    except NotFound:
        gone = registry.releases.retired(ref)
        if gone is None:
            raise
        restored = rescue_release(registry.stores, registry.touches, ref, gone.engine)
        release = registry.releases.release(ref)
    hold = registry.holds.hold(release, reason=reason, actor=desk.actor, at=desk.clock())
    # Only now no collection may take it; one that was about to is made good here.
    registry.releases.keep_whole(release)
    return Kept(release=release, hold=hold, changed=True, restored_files=restored)


def let_release_go(desk: Desk, ref: ReleaseRef, *, reason: str) -> Kept:
    """End the hold on a release; a no-op where there is none."""
    release = desk.registry.releases.release(ref)
    before = desk.registry.holds.on(ref)
    if before is None:
        return Kept(release=release, hold=None, changed=False)
    hold = desk.registry.holds.lift(release, reason=reason, actor=desk.actor, at=desk.clock())
    return Kept(release=release, hold=hold, changed=True)
