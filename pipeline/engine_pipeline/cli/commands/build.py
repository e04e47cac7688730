"""`enginectl build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import signing, verb

if TYPE_CHECKING:
    from engine_pipeline.build.build import BuildResult, StepOutcome
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("build")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--runner",
    type=click.Choice(["docker", "local"]),
    default="docker",
    show_default=True,
    help="Where steps with an image run: in it, or with the tools on PATH.",
)
@click.option(
    "--stall-timeout",
    "stall_timeout_s",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Longest silence of a step before it is stopped [default: 1800].",
)
@click.option(
    "--step-timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Longest run of a step before it is stopped [default: 86400].",
)
@click.option(
    "--memory",
    "memory_gib",
    type=click.FloatRange(min=0.01),
    metavar="GIB",
    help="Most memory of a step's container [default: nearly all of the machine's].",
)
@signing
def command(
    shell: Shell,
    spec: Path,
    runner: str,
    stall_timeout_s: float | None,
    timeout_s: float | None,
    memory_gib: float | None,
    sign_with: str | None,
) -> Answer:
    """Build the engine of SPEC, or reuse it, and record it.

    Takes what the lock says and nothing else. An engine with the same build key is reused; a build
    that was killed goes on at its first unfinished step. With --sign, an engine that this key or
    identity has not signed is built, not reused.
    """
    from engine_pipeline.build.build import build
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.locked import locked_spec
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_runs import StepLimits, runner_for

    limits = StepLimits(
        stall_timeout_s=stall_timeout_s,
        timeout_s=timeout_s,
        memory_bytes=round(memory_gib * (1 << 30)) if memory_gib is not None else None,
    )
    signing_key = shell.signer(sign_with)
    lock, place = locked_spec(shell, spec)
    result = build(
        lock,
        place.read_bytes(),
        lock_path=place,
        registry=shell.registry,
        runner=runner_for(lock, runner, limits),
        cache=shell.step_cache,
        backend=shell.backend(lock.spec.backend.kind),
        machine=shell.machine,
        progress=shell.progress,
        actor=shell.actor,
        clock=utc_now,
        signing_key=signing_key,
    )
    shell.close()
    document = {
        "engine": str(result.engine),
        "build_key": str(result.build_key),
        "spec": lock.spec.name,
        "reused": result.reused,
        "size_bytes": result.size_bytes,
        "steps": [
            {
                "name": s.name,
                "key": str(s.key),
                "reused": s.reused,
                "wall_s": s.wall_s,
                "peak_rss_bytes": s.peak_rss_bytes,
            }
            for s in result.steps
        ],
    }

    def page(out: Page) -> None:
        _draw(out, lock.spec.name, result)

    return Answer(document=document, page=page)


def _draw(out: Page, name: str, result: BuildResult) -> None:
    from engine_pipeline.cli.render import size

    reused = ", reused: built from the same inputs before" if result.reused else ""
    out.verdict("ok", f"engine of {name}{reused}")
    out.facts(
        [
            ("engine", result.engine),
            ("size", size(result.size_bytes)),
            ("build key", result.build_key),
            ("next", f"enginectl gate {result.engine.short}"),
        ]
    )
    if result.steps:
        rows = [_row(step) for step in result.steps]
        out.table(("step", "was", "took", "peak memory", "key"), rows)


def _row(step: StepOutcome) -> tuple[str, str, str, str, str]:
    from engine_pipeline.cli.render import seconds, size

    memory = size(step.peak_rss_bytes) if step.peak_rss_bytes else "-"
    was = "reused" if step.reused else "run"
    return step.name, was, seconds(step.wall_s), memory, step.key.short
