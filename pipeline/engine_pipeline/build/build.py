"""The build act: from a lock to an engine in the registry, resumable at every step.

    1 look up     an engine with this build key, whole in the registry: done
    2 preflight   target, tools, disk and memory for the steps that have to run
    3 run         each step, or its kept output
    4 inspect     files, facts and lock agree
    5 put         the engine into the registry: blobs, manifest, provenance, record, key link

Nothing here keeps state: run it again after any crash and it goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine_pipeline.build import preflight
from engine_pipeline.build.draft import engine_draft
from engine_pipeline.build.host import bound_to, host_inputs
from engine_pipeline.build.inspect import inspect_build
from engine_pipeline.build.machine import free_disk_bytes
from engine_pipeline.build.plan import BuildPlan
from engine_pipeline.build.workshop import Workshop
from engine_pipeline.runners.port import StepFailed, StepPaths
from engine_pipeline.spec.lock import build_key
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.signatures import is_signed_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from engine_pipeline.backends.port import Backend
    from engine_pipeline.build.machine import Machine
    from engine_pipeline.build.plan import Step
    from engine_pipeline.build.step_cache import KeptStep, Staging, StepCache
    from engine_pipeline.build.workshop import BuildBackend
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner, StepResult
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.trust.signers import Signer
    from engine_registry.digest import Digest
    from engine_registry.engines import StoredEngine
    from engine_registry.record import Actor
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """One step of a finished build; what it took is that of the run that made its output."""

    name: str
    key: Digest
    reused: bool
    wall_s: float
    peak_rss_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """A finished build.

    Attributes:
        reused: `engine` if the registry had one of this key, so that no step was looked at.
    """

    engine: Digest
    build_key: Digest
    reused: Literal["engine"] | None
    size_bytes: int
    steps: tuple[StepOutcome, ...] = ()


def plan_build(lock: BuildLock, backend: Backend, machine: Machine | None = None) -> BuildPlan:
    """Everything a build of this lock would do on `machine`. Pure.

    Without a machine of the target's SKU the keys leave out what such a machine adds; see
    `host.host_inputs`.

    Raises:
        InvalidInput, Incompatible: the backend refuses the spec.
    """
    backend.check(lock.spec)
    steps = backend.plan(lock)
    host = host_inputs(lock.spec.target, steps, machine)
    return BuildPlan(
        spec=lock.spec.name,
        build_key=build_key(lock, host),
        host=host,
        lock=lock.digest,
        steps=bound_to(host, steps),
    )


def build(
    lock: BuildLock,
    lock_bytes: bytes,
    *,
    lock_path: Path,
    registry: Registry,
    runner: Runner,
    cache: StepCache,
    backend: BuildBackend,
    machine: Machine,
    progress: Progress,
    actor: Actor,
    clock: Callable[[], datetime],
    signing_key: Signer | None = None,
) -> BuildResult:
    """The engine of a lock: reused, resumed or built.

    Args:
        lock: every input, pinned.
        lock_bytes: the lock as it is committed; kept with the engine.
        lock_path: where it lies; relative sources lie beside it.
        registry: where the engine goes.
        runner: executes steps.
        cache: keeps what they leave.
        backend: knows the engine kind.
        machine: this one.
        progress: told everything.
        actor: who builds.
        clock: aware UTC time.
        signing_key: signs the provenance before the engine is recorded. An engine that this key
            or identity has not signed is then built, not reused: who signs has built.

    Raises:
        InvalidInput, Incompatible: the spec, this machine or its tools do not fit.
        Unavailable: too little disk or memory, or infrastructure; safe to run again.
        EngineCIError: what a step ended with.
    """
    workshop = Workshop(
        lock=lock,
        lock_bytes=lock_bytes,
        lock_path=lock_path.absolute(),
        registry=registry,
        runner=runner,
        cache=cache,
        backend=backend,
        machine=machine,
        progress=progress,
        actor=actor,
        clock=clock,
        signing_key=signing_key,
    )
    started_at = clock()
    plan = plan_build(lock, backend, machine)
    progress.phase("look-up", f"build key {plan.build_key.short}")
    if (known := _known(plan, workshop)) is not None:
        progress.note(f"engine reused: {known.digest} was built from the same inputs")
        return BuildResult(
            engine=known.digest,
            build_key=plan.build_key,
            reused="engine",
            size_bytes=known.size_bytes,
        )
    _preflight(plan, workshop)
    kept = _run_steps(plan, workshop)
    progress.phase("inspect", lock.spec.name)
    engine_dir = kept[-1].output
    facts = inspect_build(lock, plan.steps[-1], engine_dir, backend)
    progress.phase("put", f"{sum(file.size_bytes for file in facts.files):,} bytes")
    stored = registry.engines.put_engine(engine_draft(plan, facts, kept, workshop, started_at))
    progress.note(f"engine {stored.digest}")
    return BuildResult(
        engine=stored.digest,
        build_key=plan.build_key,
        reused=None,
        size_bytes=stored.size_bytes,
        steps=tuple(map(_outcome, kept)),
    )


def _known(plan: BuildPlan, workshop: Workshop) -> StoredEngine | None:
    known = workshop.registry.engines.find_by_key(plan.build_key)
    key = workshop.signing_key
    if known is None or key is None:
        return known
    digest = known.digest
    if is_signed_with(workshop.registry, digest, Role.BUILD, digest, key.public):
        return known
    workshop.progress.note(f"engine {digest.short} is not reused: this signer has not signed it")
    return None


def _outcome(kept: KeptStep) -> StepOutcome:
    return StepOutcome(
        name=kept.record.name,
        key=kept.record.key,
        reused=kept.reused,
        wall_s=kept.record.wall_s,
        peak_rss_bytes=kept.record.peak_rss_bytes,
    )


def _preflight(plan: BuildPlan, workshop: Workshop) -> None:
    workshop.progress.phase("preflight", workshop.machine.host_class)
    preflight.check_gpus(workshop.lock, workshop.machine)
    preflight.check_target(workshop.lock, workshop.machine)
    preflight.check_tools(workshop.lock, workshop.backend.tools())
    missing = [step for step in plan.steps if workshop.cache.find(step.key) is None]
    preflight.check_room(missing, workshop.machine, free_disk_bytes(workshop.cache.root))


def _run_steps(plan: BuildPlan, workshop: Workshop) -> list[KeptStep]:
    kept: dict[str, KeptStep] = {}
    for step in plan.steps:
        inputs = {name: kept[name].output for name in step.inputs}
        done = workshop.cache.obtain(step, _maker(step, inputs, workshop), workshop.progress)
        if done.reused:
            workshop.progress.note(f"{step.name}: reused (step {step.key.short})")
        kept[step.name] = done
    return list(kept.values())


def _maker(
    step: Step, inputs: dict[str, Path], workshop: Workshop
) -> Callable[[Staging], StepResult]:
    def make(staging: Staging) -> StepResult:
        workshop.progress.phase(step.name, step.title)
        paths = StepPaths(
            lock=workshop.lock_path,
            inputs=inputs,
            output=staging.output,
            scratch=staging.scratch,
            log=staging.log,
        )
        try:
            return workshop.runner.run(step, paths, workshop.progress)
        except StepFailed as failed:
            known = workshop.backend.words.step_error(step.name, failed.tail)
            if known is None:
                raise
            known.hint += f"; its output is in {paths.log}"
            raise known from failed

    return make
