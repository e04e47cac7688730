"""Amounts of bytes on the command line and in the environment: `200GB`, `1.5TB`, `64GiB`, `0`."""

from __future__ import annotations

import re
from typing import Any

import click

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def read_size(text: str) -> int:
    """The bytes that `text` means; a number alone is bytes.

    Raises:
        ValueError: it is no amount.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is no amount of bytes; want 200GB, 1.5TB or 64GiB"
        raise ValueError(msg)
    return round(float(match.group(1)) * _UNITS[match.group(2) or "B"])


class Size(click.ParamType[int]):
    """An amount as `read_size` reads it."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read an amount."""
        try:
            return read_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Size()
