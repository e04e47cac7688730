"""Times on the command line: ISO 8601, a date, a span from now; and spans."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_SPAN = re.compile(r"(-?)([0-9]{1,6})([smhd])(?: ago)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Moment(click.ParamType[datetime]):
    """`2026-11-24`, `2026-11-24T14:00Z`, `12h` from now, `-2d` or `2d ago`; always UTC."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read a time; a time without a zone is UTC."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        if match := _SPAN.fullmatch(text):
            sign = -1 if match.group(1) or text.endswith("ago") else 1
            span = timedelta(**{_UNITS[match.group(3)]: int(match.group(2))})
            return datetime.now(UTC) + sign * span
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is no time; want 2026-11-24, 2026-11-24T14:00Z, 12h or -2d", param, ctx
            )
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


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


MOMENT = Moment()
SPAN = Span()
