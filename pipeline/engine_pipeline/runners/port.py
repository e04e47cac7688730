"""What the pipeline asks of a runner: execute one step somewhere and say what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_pipeline.build.plan import Step
    from engine_pipeline.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPaths:
    """Where a step finds what its placeholders name; every path is absolute.

    Attributes:
        inputs: step name → its finished output, which must not be written.
        output: exists and is empty.
        scratch: exists; working directory and temporary files, thrown away afterwards.
        log: where the step's text goes.
        gpus: UUIDs of the GPUs that are leased to the step.
    """

    lock: Path
    output: Path
    scratch: Path
    log: Path
    inputs: Mapping[str, Path] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a finished step took; None where the runner cannot tell."""

    wall_s: float
    peak_rss_bytes: int | None


class StepFailed(EngineCIError):
    """A step ended with an exit code, and neither it nor the runner knows why.

    Attributes:
        tail: the last lines it printed, for whoever knows its tool.
    """

    reference = "step-failed"
    tail: tuple[str, ...] = ()


class Runner(Protocol):
    """Executes steps. Whatever ends a run, no process of the step is left behind."""

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run the step's command to its end.

        Raises:
            EngineCIError: the error the step itself ended with, of the step's own class.
            StepFailed: it said none.
            Unavailable: `out-of-host-memory`, `disk-full`, `step-stalled`, `step-timed-out`.
            KeyboardInterrupt: passed on once every process of the step is gone.
        """
        ...
