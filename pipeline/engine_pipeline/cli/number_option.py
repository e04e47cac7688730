"""Numbers on a command line, refused in words that say what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class Number(click.FloatRange):
    """As click's, with better words for what is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises BadParameter."""
        return super().convert(_checked(self, float, value, param, ctx), param, ctx)


class WholeNumber(click.IntRange):
    """As click's, with better words for what is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises BadParameter."""
        return super().convert(_checked(self, int, value, param, ctx), param, ctx)


class PerCent(Number):
    """Per cent, as `5` or `5%`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises BadParameter."""
        plain = value.strip().removesuffix("%").rstrip() if isinstance(value, str) else value
        return super().convert(plain, param, ctx)


def _checked(
    kind: click.FloatRange | click.IntRange,
    read: Callable[[Any], float],
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    try:
        number = read(value)
    except ValueError:
        number = float("nan")
    if number != number:  # noqa: PLR0124 (NaN is what does not equal itself)
        what = "whole number" if read is int else "number"
        least = (
            "" if kind.min is None else f" {'more than' if kind.min_open else 'from'} {kind.min:g}"
        )
        most = "" if kind.max is None else f" up to {kind.max:g}"
        kind.fail(f"{value!r} is no {what}: want one{least}{most}", param, ctx)
    return value
