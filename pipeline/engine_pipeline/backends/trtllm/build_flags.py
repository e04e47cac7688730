"""Flags of `trtllm-build` in each release, and the values pinned here. Pure.

The table is `build_flags.json`, which names its sources. Every flag of a release that can change an
engine is given on the command line, because defaults moved between releases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from engine_pipeline.tables import table_beside

# What a flag is pinned to where the recipe, or other flags, decide.
BY_RECIPE = "by-recipe"
COMPUTED = "computed"
NONE_OF_THEM = "disable"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFlag:
    """One flag with a value.

    Attributes:
        choices: words it takes; None for a whole number.
        pinned: the value where the spec says nothing; may be `BY_RECIPE` or `COMPUTED`.
        plugin: it ends up in `build_config.plugin_config`, otherwise in `build_config` itself.
        option: a spec may set it, with dashes for underscores.
    """

    name: str
    choices: tuple[str, ...] | None
    pinned: str
    plugin: bool
    option: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """A known defect of some releases."""

    releases: tuple[str, ...]
    says: str
    source: str


def flags_of(version: str) -> tuple[BuildFlag, ...]:
    """Every flag with a value that this release has, in the order they are given."""
    return _flags()[_table()["line_of"][version]]


def build_versions() -> tuple[str, ...]:
    """Releases whose builder is known here, oldest first."""
    return tuple(_table()["line_of"])


def cluster_key(version: str, sku: str) -> str | None:
    """The board's label for releases that put one into `config.json`; None where there is none."""
    table = _table()
    lines: list[str] = table["lines"]
    until = table["flags"]["auto_parallel"]["until"]
    if lines.index(table["line_of"][version]) > lines.index(until):
        return None
    label: str | None = table["cluster_keys"].get(sku)
    return label


def refused_plugins(sm: int) -> tuple[str, ...]:
    """Plugins that must stay disabled on this compute capability."""
    return tuple(_table()["refused_on_sm100"]["plugins"]) if sm >= 100 else ()


def quirk(name: str) -> Quirk:
    """The known defect of this name."""
    row = _table()["quirks"][name]
    return Quirk(releases=tuple(row["releases"]), says=row["says"], source=row["source"])


@cache
def _flags() -> dict[str, tuple[BuildFlag, ...]]:
    table = _table()
    lines: list[str] = table["lines"]
    return {
        line: tuple(
            BuildFlag(
                name=name,
                choices=_choices(row, table["kinds"]),
                pinned=_pinned(row["pinned"], line),
                plugin=row.get("plugin", False),
                option=row.get("option", False),
            )
            for name, row in table["flags"].items()
            if lines.index(row.get("since", lines[0]))
            <= lines.index(line)
            <= lines.index(row.get("until", lines[-1]))
        )
        for line in lines
    }


def _choices(row: dict[str, Any], kinds: dict[str, list[str]]) -> tuple[str, ...] | None:
    if row.get("kind") == "int":
        return None
    return tuple(row.get("choices") or kinds[row["kind"]])


def _pinned(value: str | dict[str, str], line: str) -> str:
    return value if isinstance(value, str) else value[line]


def _table() -> dict[str, Any]:
    return table_beside(__file__, "build_flags.json")
