"""Times on the command line: ISO 8601, a date, a span before or after now; and spans."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import click

_SPAN = re.compile(r"(-?)([0-9]{1,6})([smhd])(?: ago)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Moment(click.ParamType[datetime]):
    """A time, always UTC; which way a span without a sign goes is each kind's own."""

    name = "TIME"
    example: ClassVar[str]
    unsigned: ClassVar[int]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read a time; a time without a zone is UTC."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        now = datetime.now(UTC)
        if match := _SPAN.fullmatch(text):
            sign = -1 if match.group(1) or text.endswith("ago") else self.unsigned
            span = timedelta(**{_UNITS[match.group(3)]: int(match.group(2))})
            return now + sign * span
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is no time; want 2026-11-24, 2026-11-24T14:00Z or {self.example}",
                param,
                ctx,
            )
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        if (wrong := self.refused(moment, now)) is not None:
            self.fail(wrong, param, ctx)
        return moment

    def refused(self, moment: datetime, now: datetime) -> str | None:  # noqa: ARG002
        """Why a time that was written out is none of this kind; None if it is one."""
        return None


class Past(Moment):
    """What was: `2026-11-24`, `2026-11-24T14:00Z`; `2d`, `-2d` and `2d ago` are one."""

    example = "2d ago"
    unsigned = -1

    def refused(self, moment: datetime, now: datetime) -> str | None:
        """Nothing is known of what has not been."""
        if moment <= now:
            return None
        return f"{moment:%Y-%m-%d %H:%M}Z is yet to come; it is {now:%Y-%m-%d %H:%M}Z"


class Expiry(Moment):
    """When something ends: `2026-12-24T18:00Z`, or `12h` from now."""

    example = "12h"
    unsigned = 1


class Span(click.ParamType[timedelta]):
    """`90s`, `30m`, `12h` or `7d`; more than nothing."""

    name = "SPAN"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read a span as policies write it."""
        from engine_pipeline.promote.duration import read_duration

        try:
            span = read_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not span:
            self.fail("want at least 1s", param, ctx)
        return span


PAST = Past()
EXPIRY = Expiry()
SPAN = Span()
