"""Which runner a step goes to: decided by whether it names an image."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from engine_pipeline.build.plan import Step
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner, StepPaths, StepResult


class ByImage:
    """Steps with an image run in it; steps of this project, such as fetching, run here.

    Args:
        here: for steps without an image.
        in_image: for steps with one.
    """

    def __init__(self, here: Runner, in_image: Runner) -> None:
        self._here = here
        self._in_image = in_image

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run it; see `Runner.run`."""
        runner = self._here if step.image is None else self._in_image
        return runner.run(step, paths, progress)


class ToolsOnPath:
    """Runs steps that name an image with the tools that are on PATH.

    For a process that is inside that image already, or on a machine with the toolkit installed.
    Nothing here can tell that these are the image's tools: the versions that the engine's own files
    state are compared with the lock afterwards.

    Args:
        here: runs processes of this machine.
    """

    def __init__(self, here: Runner) -> None:
        self._here = here

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run it; see `Runner.run`.

        Raises:
            Incompatible: `tool-not-on-path`.
        """
        tool = step.argv[0]
        if not tool.startswith("{") and shutil.which(tool) is None:
            raise Incompatible(
                f"step {step.name}: {tool} is not on PATH, the step is planned for {step.image}",
                hint="start this inside that image, or let Docker run the step",
                reference="tool-not-on-path",
            )
        return self._here.run(step.model_copy(update={"image": None}), paths, progress)
