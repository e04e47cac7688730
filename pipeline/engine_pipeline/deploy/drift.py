"""Does a target still serve what its channel says? Reads both, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.deploy.deploy import wanted_of
from engine_pipeline.deploy.rules import Difference, differences
from engine_pipeline.targets.port import Running

if TYPE_CHECKING:
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.targets.port import Deployment, Reading, Target
    from engine_registry.refs import ChannelRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A target beside its channel.

    Attributes:
        differences: empty if the target serves what the channel says.
        is_damaged: files there are not the engine's: worse than another release.
    """

    wanted: Deployment
    reading: Reading
    differences: tuple[Difference, ...]
    is_damaged: bool


def find_drift(desk: Desk, channel: ChannelRef, target: Target, *, deep: bool) -> Drift:
    """Compare them now; `deep` hashes every engine file on the target.

    Raises:
        NotFound: nothing is live on the channel.
        Unavailable: the target cannot be asked.
    """
    wanted = wanted_of(desk, channel, target)
    reading = target.read(deep=deep)
    serves = reading.serves
    return Drift(
        wanted=wanted,
        reading=reading,
        differences=differences(wanted, reading),
        is_damaged=isinstance(serves, Running) and bool(serves.damaged),
    )
