"""How the boards did while something was measured, and what of it does not count. Pure.

A board slows down for reasons of its own, and the driver says which. Too hot, too little power
from outside, or a fault are disturbances: what was measured then says nothing of an engine. The
board's own power limit, idling and set clocks are how that board is, and disturb nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Bits of NVML's clocks event reasons (nvml.h, 12.x).
REASONS = {
    0x001: "idle",
    0x002: "set clocks",
    0x004: "power limit of the board",
    0x008: "hardware slowdown",
    0x010: "clocks kept in step with other boards",
    0x020: "too hot, by the driver",
    0x040: "too hot, by the hardware",
    0x080: "power brake from outside",
    0x100: "display clocks",
}
DISTURBING = 0x008 | 0x020 | 0x040 | 0x080
_DISTURBING_WORDS = {word for bit, word in REASONS.items() if bit & DISTURBING}
RULE = (
    "a request does not count if a GPU was slowed down while it ran: too hot, a power brake from "
    "outside, or a hardware slowdown; the times that were measured are not looked at"
)
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One board at one time; None is what it does not tell."""

    at: float
    uuid: str
    name: str
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_mw: int | None = None
    temperature_c: int | None = None
    memory_used_bytes: int | None = None
    busy_percent: int | None = None
    reasons: int | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether it is slowed down by what is not its own."""
        return bool((self.reasons or 0) & DISTURBING)


class BoardUse(Value):
    """One board over some time.

    Attributes:
        readings: how many there are.
        slowed: readings by reason for which clocks were held back.
        disturbed_share: of the readings.
    """

    uuid: str
    name: str
    readings: Annotated[int, Field(ge=1)]
    sm_clock_median_mhz: float | None
    sm_clock_min_mhz: float | None
    memory_clock_median_mhz: float | None
    power_mean_w: float | None
    power_max_w: float | None
    temperature_max_c: float | None
    memory_used_max_bytes: int | None
    busy_mean_share: float | None
    slowed: dict[str, int] = {}
    disturbed_share: Share = 0.0


def use_of(readings: Iterable[Reading], since: float, until: float) -> tuple[BoardUse, ...]:
    """Each board between two times, in the order in which they were first read."""
    boards: dict[str, list[Reading]] = {}
    for reading in readings:
        if since <= reading.at <= until:
            boards.setdefault(reading.uuid, []).append(reading)
    return tuple(_board(found) for found in boards.values())


def disturbances(readings: Sequence[Reading], period_s: float) -> list[tuple[float, float]]:
    """When some board was slowed down; a reading stands for the time up to its neighbours."""
    return [(one.at - period_s, one.at + period_s) for one in readings if one.is_disturbed]


def overlaps(start: float, end: float, spans: Iterable[tuple[float, float]]) -> bool:
    """Whether any of the spans touches the time from `start` to `end`."""
    return any(begun <= end and start <= over for begun, over in spans)


def slowed(boards: Iterable[BoardUse]) -> str | None:
    """Which boards were slowed down by what is not their own, in words; None if none was."""
    said = [
        f"{board.name} in {board.disturbed_share:.0%} of {board.readings} readings "
        f"({', '.join(sorted(set(board.slowed) & _DISTURBING_WORDS))})"
        for board in boards
        if board.disturbed_share
    ]
    return "; ".join(said)[:500] or None


def words(board: BoardUse) -> str:
    """A board in one line."""
    said = [
        f"{board.name}: SM clock {_number(board.sm_clock_median_mhz)} MHz "
        f"(least {_number(board.sm_clock_min_mhz)})",
        f"{_number(board.power_mean_w)} W (most {_number(board.power_max_w)})",
        f"{_number(board.temperature_max_c)} °C at most",
    ]
    if board.memory_used_max_bytes is not None:
        said.append(f"{board.memory_used_max_bytes / 2**30:.1f} GiB used at most")
    if board.slowed:
        held = ", ".join(f"{reason} {n} times" for reason, n in sorted(board.slowed.items()))
        said.append(f"of {board.readings} readings held back: {held}")
    return ", ".join(said)


def _board(found: Sequence[Reading]) -> BoardUse:
    slowed: Counter[str] = Counter()
    for reading in found:
        slowed.update(name for bit, name in REASONS.items() if (reading.reasons or 0) & bit)
    sm = _known(reading.sm_clock_mhz for reading in found)
    memory = _known(reading.memory_clock_mhz for reading in found)
    power = [one / 1000 for one in _known(reading.power_mw for reading in found)]
    heat = _known(reading.temperature_c for reading in found)
    used = _known(reading.memory_used_bytes for reading in found)
    busy = _known(reading.busy_percent for reading in found)
    return BoardUse(
        uuid=found[0].uuid,
        name=found[0].name,
        readings=len(found),
        sm_clock_median_mhz=median(sm) if sm else None,
        sm_clock_min_mhz=min(sm, default=None),
        memory_clock_median_mhz=median(memory) if memory else None,
        power_mean_w=round(fmean(power), 1) if power else None,
        power_max_w=round(max(power), 1) if power else None,
        temperature_max_c=max(heat, default=None),
        memory_used_max_bytes=max(used, default=None),
        busy_mean_share=round(fmean(busy) / 100, 4) if busy else None,
        slowed=dict(sorted(slowed.items())),
        disturbed_share=round(sum(one.is_disturbed for one in found) / len(found), 4),
    )


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
