"""The commands that hints name, for the same registry as this one: ready to be pasted. Pure."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMAND = re.compile(r"`enginectl ([a-z][^`]*)`")


def on_the_same(hint: str, named: Mapping[str, str], verb: str = "") -> str:
    """`hint`, its commands with the options that this command line named and they do not.

    Args:
        hint: text with commands in backticks.
        named: options with their values, e.g. `--registry`.
        verb: the one command that takes them; all, if it is empty.
    """

    def completed(match: re.Match[str]) -> str:
        command = match.group(1)
        if verb not in {"", command.split()[0]}:
            return match.group(0)
        added = "".join(
            f" {option} {quote(value)}"
            for option, value in named.items()
            if f"{option} " not in command and f"{option}=" not in command
        )
        return f"`enginectl {command}{added}`"

    return _COMMAND.sub(completed, hint)
