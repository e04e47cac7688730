"""What a gate tells a GitHub job beside its answer: annotations and the job's summary.

The job's log is also a channel of commands: a line that begins with `::` is obeyed, and a model may
answer with such a line. So commands are stopped while the answer is printed.
"""

from __future__ import annotations

import secrets
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine_pipeline.gates.report import Report
    from engine_pipeline.progress import Progress


class GitHubJob:
    """The step of a GitHub job that this process runs in."""

    def __init__(self, summary_file: str | None) -> None:
        self._summary_file = summary_file

    def annotate(self, reports: Sequence[Report], out: TextIO) -> None:
        """Print a command for each thing that did not pass; GitHub reads both streams."""
        from engine_pipeline.gates.annotations import workflow_commands

        for line in workflow_commands(reports):
            out.write(line + "\n")
        out.flush()

    def summarise(self, reports: Sequence[Report], progress: Progress) -> None:
        """Append the reports to the job's summary; where it cannot be written, nothing fails."""
        from engine_pipeline.gates.annotations import summary
        from engine_pipeline.gates.markdown import to_markdown

        if not self._summary_file:
            return
        path = Path(self._summary_file)
        text = "\n".join(map(to_markdown, reports))
        try:
            taken = path.stat().st_size if path.exists() else 0
            with path.open("a", encoding="utf-8", newline="\n") as out:
                out.write(summary(text, taken))
        except OSError as error:
            progress.note(f"the job's summary cannot be written: {path}: {error.strerror}")

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """While the block lasts, nothing on standard output is taken for a command."""
        token = secrets.token_hex(16)
        sys.stdout.write(f"::stop-commands::{token}\n")
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stdout.write(f"::{token}::\n")
            sys.stdout.flush()


def github_job(environment: Mapping[str, str]) -> GitHubJob | None:
    """The job that these variables tell of; None elsewhere."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return None
    return GitHubJob(environment.get("GITHUB_STEP_SUMMARY"))
