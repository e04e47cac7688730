"""Drawing for people: facts, tables and verdicts that fit 100 columns. Holds no rule of its own."""

from __future__ import annotations

import shutil
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine_registry.errors import escaped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from rich.console import Console

_WIDTH = 100
_COLOURS = {
    "passed": "green",
    "ok": "green",
    "live": "green",
    "failed": "red",
    "refused": "red",
    "errored": "magenta",
    "inconclusive": "yellow",
    "skipped": "dim",
    "frozen": "yellow",
    "hold": "yellow",
}


class Page:
    """A growing page on standard output.

    What a terminal would obey (reasons and names that somebody else wrote) is escaped here, for
    every line, fact and cell.
    """

    def __init__(self) -> None:
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The rich console, made when first needed."""
        if self._console is None:
            from rich.console import Console

            columns = (
                shutil.get_terminal_size((_WIDTH, 40)).columns if sys.stdout.isatty() else _WIDTH
            )
            self._console = Console(width=min(columns, 140), highlight=False, soft_wrap=False)
        return self._console

    def line(self, text: str = "") -> None:
        """One plain line, or several; never interpreted as markup."""
        sys.stdout.write("\n".join(map(escaped, text.split("\n"))) + "\n")

    def wrapped(self, text: str, indent: str) -> None:
        """One long line, broken between words; what follows the first is indented deeper."""
        import textwrap

        lines = textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.line("\n".join(lines))

    def verdict(self, word: str, text: str) -> None:
        """A line that begins with a coloured word."""
        if sys.stdout.isatty():
            self.flush()
            self.console.print(f"[bold {colour(word)}]{word}[/]", end=" ")
            self.console.print(escaped(text), markup=False)
        else:
            self.line(f"{word} {text}")

    def facts(self, rows: Iterable[tuple[str, Any]]) -> None:
        """Names and values, aligned; rows whose value is None are left out."""
        kept = [(name, value) for name, value in rows if value is not None]
        width = max((len(name) for name, _ in kept), default=0)
        for name, value in kept:
            first, *more = str(value).splitlines() or [""]
            self.line(f"  {name:<{width}}  {first}")
            for line in more:
                self.line(f"  {'':<{width}}  {line}")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        title: str = "",
        *,
        whole: Collection[str] = (),
        widest: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """A table; cells that are known words are coloured, and none is cut.

        Args:
            columns: their heads.
            rows: a cell for each column.
            title: a line above.
            whole: columns that keep their cells on one line; the others are broken.
            widest: columns that take no more than so many characters.
        """
        from rich.table import Column, Table
        from rich.text import Text

        table = Table(
            *(
                Column(head, overflow="fold", no_wrap=head in whole, max_width=widest.get(head))
                for head in columns
            ),
            title=title or None,
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="bold",
            padding=(0, 2, 0, 0),
        )
        for row in rows:
            cells = [escaped(str(cell)) for cell in row]
            table.add_row(*(Text(cell, style=colour(cell.split(" ")[0], "")) for cell in cells))
        self.flush()
        self.console.print(table)

    def flush(self) -> None:
        """Push out what was written."""
        sys.stdout.flush()


def colour(word: str, default: str = "default") -> str:
    """The colour of a known word."""
    return _COLOURS.get(word, default)


def counted(count: int, noun: str) -> str:
    """`1 file`, `3 files`, `1,200 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def when(moment: datetime | None) -> str:
    """`2026-12-02 09:15:04Z`; `-` for None."""
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "-"


def size(count: float) -> str:
    """Bytes with a decimal unit: `145 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def seconds(span: float) -> str:
    """`0.42 s`, `12 s`, `3 min 05 s`, `1 h 02 min`."""
    if span < 10:
        return f"{span:.2f} s"
    if span < 60:
        return f"{span:.0f} s"
    minutes, rest = divmod(round(span), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
