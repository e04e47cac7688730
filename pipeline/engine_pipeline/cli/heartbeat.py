"""Progress on standard error: a bar on a terminal, plain lines with a heartbeat anywhere else."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from engine_pipeline.cli.render import seconds, size
from engine_registry.errors import escaped

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from engine_pipeline.progress import Progress

# A silent CI job looks hung; one line in this many seconds is enough and floods no log.
_HEARTBEAT_S = 15.0


def progress_for_stderr() -> Progress:
    """The progress that fits what standard error is."""
    return BarProgress() if sys.stderr.isatty() else LineProgress()


def amount(done: float, total: float | None, unit: str) -> str:
    """`12 of 48 cases`, `64 MB of 145 MB`, `12 requests`."""
    if unit == "bytes":
        return f"{size(done)} of {size(total)}" if total else size(done)
    return f"{done:.0f} of {total:.0f} {unit}" if total else f"{done:.0f} {unit}"


class LineProgress:
    """Plain lines: each phase once, then a heartbeat while it lasts."""

    def __init__(self) -> None:
        self._name = ""
        self._began = self._said = time.monotonic()

    def phase(self, name: str, detail: str = "") -> None:
        """Print the phase."""
        self._name = name
        self._began = self._said = time.monotonic()
        self._say(f"{name}: {detail}" if detail else name)

    def update(self, done: float, total: float | None, unit: str) -> None:
        """Print a heartbeat when the last line is old enough."""
        now = time.monotonic()
        if now - self._said >= _HEARTBEAT_S:
            self._said = now
            self._say(f"{self._name}: {amount(done, total, unit)}, {seconds(now - self._began)}")

    def note(self, text: str) -> None:
        """Print the note."""
        self._said = time.monotonic()
        self._say(text)

    def _say(self, text: str) -> None:
        sys.stderr.write(f"  {escaped(text)}\n")
        sys.stderr.flush()


class BarProgress:
    """A bar for the current phase, notes above it."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._name = ""

    def phase(self, name: str, detail: str = "") -> None:
        """Start a new bar; the finished one goes away."""
        self.close()
        self._name = name
        self._bar = self._start()
        self._task = self._bar.add_task(f"{name} {detail}".strip()[:40], total=None, amount="")

    def update(self, done: float, total: float | None, unit: str) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            text = amount(done, total, unit)
            self._bar.update(self._task, completed=done, total=total, amount=text)

    def note(self, text: str) -> None:
        """Print the note above the bar."""
        if self._bar is None:
            sys.stderr.write(f"  {escaped(text)}\n")
        else:
            self._bar.console.print(f"  {escaped(text)}", markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @staticmethod
    def _start() -> Bar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        return bar
