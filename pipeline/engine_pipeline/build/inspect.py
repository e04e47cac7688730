"""The last look at an engine before it is believed: lock, files and what they say must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.build.outputs import check_outputs
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, EngineFacts
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock


def inspect_build(lock: BuildLock, last: Step, engine_dir: Path, backend: Backend) -> EngineFacts:
    """The facts of a built engine that is what its lock asked for.

    Args:
        lock: what was asked for.
        last: the step that left the engine.
        engine_dir: its output.
        backend: knows the engine kind.

    Raises:
        EngineCIError: `step-output-differs`.
        InvalidInput: the files are no engine of this kind.
        Incompatible: `engine-differs-from-lock`, with both sides of each difference.
    """
    check_outputs(last, engine_dir)
    facts = backend.inspect(engine_dir)
    if mismatches := backend.compare(lock, facts):
        sides = "; ".join(f"{m.what}: wanted {m.wanted}, found {m.found}" for m in mismatches)
        raise Incompatible(
            f"{lock.spec.name}: the engine is not what the lock asks for: {sides}",
            hint=mismatches[0].hint,
            reference="engine-differs-from-lock",
        )
    return facts
