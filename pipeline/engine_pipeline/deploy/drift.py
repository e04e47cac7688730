"""Does a target still serve what its channel says? Reads both, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.deploy.deploy import logged_digest, wanted_of
from engine_pipeline.deploy.rules import Difference, differences
from engine_pipeline.targets.port import Running

if TYPE_CHECKING:
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.targets.port import Deployment, Fence, Reading, Target
    from engine_registry.refs import ChannelRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A target beside its channel.

    Attributes:
        differences: empty if the target serves what the channel says.
        is_damaged: files there are not the engine's: worse than another release.
        unknown_event: what was deployed there last, if this registry's log does not have it: the
            registry is another one, or a copy that lacks the newest events.
    """

    wanted: Deployment
    reading: Reading
    differences: tuple[Difference, ...]
    is_damaged: bool
    unknown_event: Fence | None = None


def find_drift(desk: Desk, channel: ChannelRef, target: Target, *, deep: bool) -> Drift:
    """Compare them now; `deep` hashes every engine file on the target.

    Raises:
        NotFound: nothing is live on the channel.
        Unavailable: the target cannot be asked.
    """
    wanted = wanted_of(desk, channel, target)
    reading = target.read(deep=deep)
    serves, fence = reading.serves, reading.fence
    is_unknown = (
        fence is not None
        and fence.channel == str(channel)
        and fence.event_digest != logged_digest(desk.registry, channel, fence)
    )
    return Drift(
        wanted=wanted,
        reading=reading,
        differences=differences(wanted, reading),
        is_damaged=isinstance(serves, Running) and bool(serves.damaged),
        unknown_event=fence if is_unknown else None,
    )
