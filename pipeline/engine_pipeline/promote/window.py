"""When promotions may happen: days and times of day in UTC, as channels.yaml writes them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from engine_pipeline.promote.findings import Finding
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

Time = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")]
_WEEK = timedelta(days=7)


class Day(StrEnum):
    """A day of the week, Monday first."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


_DAYS = list(Day)


class Window(Value):
    """Some days of the week, from one time of day to another.

    Attributes:
        days: mon, tue, wed, thu, fri, sat, sun.
        opens: in UTC, e.g. `08:00`.
        closes: in UTC, later on the same day; `24:00` is its end.
    """

    days: Annotated[tuple[Day, ...], Field(min_length=1)]
    opens: Time
    closes: Time

    @model_validator(mode="after")
    def _closes_after_it_opens(self) -> Self:
        if self.closes <= self.opens:
            msg = f"closes {self.closes} is not after opens {self.opens}; two windows span midnight"
            raise ValueError(msg)
        return self

    def is_open(self, now: datetime) -> bool:
        """Whether `now`, aware UTC, is in it; the closing minute is not."""
        return _DAYS[now.weekday()] in self.days and self.opens <= f"{now:%H:%M}" < self.closes

    def next_opening(self, now: datetime) -> datetime:
        """The first opening after `now`."""
        hours, minutes = map(int, self.opens.split(":"))
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        openings = (
            midnight + timedelta(days=ahead, hours=hours, minutes=minutes)
            for ahead in range(_WEEK.days + 1)
        )
        return next(at for at in openings if at > now and _DAYS[at.weekday()] in self.days)

    def __str__(self) -> str:
        return f"{','.join(self.days)} {self.opens}-{self.closes}Z"


def window_finding(channel: str, windows: Sequence[Window], now: datetime) -> Finding:
    """Is `now` within one of the windows? Only promotions ask; rollbacks never do."""
    open_at = "; ".join(map(str, windows))
    says = f"it is {now:%a %Y-%m-%d %H:%M}Z, {channel} takes promotions {open_at}"
    if any(window.is_open(now) for window in windows):
        return Finding(rule="window", holds=True, says=says)
    opens = min(window.next_opening(now) for window in windows)
    return Finding(
        rule="window",
        holds=False,
        says=says,
        hint=f"promote again from {opens:%a %Y-%m-%d %H:%M}Z on; rollback stays allowed",
    )
