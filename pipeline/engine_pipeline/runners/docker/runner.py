"""Runs steps in their image: a local process, the keeper, holds each container."""

from __future__ import annotations

import dataclasses
import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_pipeline.build.plan import fill
from engine_pipeline.docker_engine.connect import ENVIRONMENT, connect
from engine_pipeline.runners.docker.orphans import remove
from engine_pipeline.runners.docker.work import LOCK, OUTPUT, SCRATCH, ContainerWork, Mount
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.build.plan import Step
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner, StepPaths, StepResult

_KEEPER = "engine_pipeline.runners.docker.keeper"
# What the placeholder stands for in an image, which has an interpreter of its own.
PYTHON = "python3"
_REPORT = ".container.json"
_NO_GPUS = "report this as a bug: the wiring gives steps their GPUs"


class DockerRunner:
    """Steps in containers; which steps those are is decided by `Step.image`.

    Args:
        processes: runs the keepers; its limits on time and silence hold for the containers.
        memory_bytes: most memory of one container; None for nearly all that the daemon's machine
            has.
    """

    def __init__(self, processes: Runner, *, memory_bytes: int | None = None) -> None:
        self._processes = processes
        self._memory_bytes = memory_bytes

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run it; see `Runner.run`.

        Raises:
            EngineCIError: as `Runner.run`, and each thing that Docker may refuse: see
                `docker_engine.failures`.
        """
        if len(paths.gpus) != step.gpus:
            raise EngineCIError(
                f"step {step.name} needs {step.gpus} GPUs, {len(paths.gpus)} are leased",
                hint=_NO_GPUS,
            )
        work = _work(step, paths, self._memory_bytes)
        keeper = step.model_copy(
            update={
                "argv": ("{python}", "-m", _KEEPER, work.model_dump_json()),
                "image": None,
                "env": (*step.env, *ENVIRONMENT),
                # They are the container's and might mislead the keeper.
                "variables": {},
            }
        )
        try:
            result = self._processes.run(
                keeper, dataclasses.replace(paths, inputs={}, gpus=()), progress
            )
        except BaseException:
            # A keeper that was killed could not remove it.
            with suppress(EngineCIError):
                remove(connect(), work.name)
            raise
        return dataclasses.replace(result, peak_rss_bytes=_peak(paths.scratch / _REPORT))


def _work(step: Step, paths: StepPaths, memory_bytes: int | None) -> ContainerWork:
    assert step.image is not None
    home, temporary = paths.scratch / "work", paths.scratch / "tmp"
    for directory in (home, temporary):
        directory.mkdir()
    inside = {name: f"/ci/in/{name}" for name in paths.inputs}
    values = {"python": PYTHON, "lock": LOCK, "output": OUTPUT}
    values |= {f"input:{name}": path for name, path in inside.items()}
    return ContainerWork(
        name=f"engine-ci-{step.name}-{secrets.token_hex(6)}",
        what=f"step {step.name}",
        image=step.image,
        argv=tuple(fill(step.argv, values)),
        mounts=(
            Mount(source=str(paths.lock), target=LOCK),
            *(Mount(source=str(paths.inputs[name]), target=path) for name, path in inside.items()),
            Mount(source=str(paths.output), target=OUTPUT, writable=True),
            Mount(source=str(home), target=SCRATCH, writable=True),
            Mount(source=str(temporary), target="/tmp", writable=True),
        ),
        env=step.env,
        variables=step.variables,
        gpus=paths.gpus,
        shm_bytes=step.shm_bytes,
        memory_bytes=memory_bytes,
        expected_bytes=step.ram_bytes,
        network=step.network,
        report=str(paths.scratch / _REPORT),
    )


def _peak(report: Path) -> int | None:
    try:
        peak = json.loads(report.read_bytes())["peak_rss_bytes"]
    except (OSError, ValueError, KeyError):
        return None
    return int(peak) if peak is not None else None
