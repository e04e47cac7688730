"""`enginectl plan`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.build.plan import BuildPlan, Step
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("plan")
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
def command(shell: Shell, spec: Path) -> Answer:
    """Print what a build of SPEC would do, and do nothing: the dry run.

    Each step is named with its key, its command, and whether its output is in the step cache. Keys
    of what a GPU makes cover its driver: on another machine they are shown without it.
    """
    from engine_pipeline.build.build import plan_build
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.locked import locked_spec

    lock, _ = locked_spec(shell, spec)
    plan = plan_build(lock, shell.backend(lock.spec.backend.kind), shell.machine)
    cached = [step.name for step in plan.steps if shell.step_cache.find(step.key) is not None]
    engine = _recorded(shell, plan)
    document = {"plan": plan.model_dump(mode="json"), "cached": cached, "engine": engine}

    def page(out: Page) -> None:
        _draw(out, plan, cached, engine)

    return Answer(document=document, page=page)


def _recorded(shell: Shell, plan: BuildPlan) -> str | None:
    """The engine that is in the registry for this build key, if there is one."""
    stored = shell.registry.engines.find_by_key(plan.build_key)
    return str(stored.digest) if stored else None


def _draw(out: Page, plan: BuildPlan, cached: list[str], engine: str | None) -> None:
    out.line(f"plan for {plan.spec}")
    host = ", ".join(f"{name} {value}" for name, value in plan.host.items())
    out.facts(
        [("build key", plan.build_key), ("of this machine", host or None), ("lock", plan.lock)]
    )
    if engine is not None:
        out.facts([("engine", f"{engine} is recorded: a build would reuse it")])
    for number, step in enumerate(plan.steps, 1):
        state = "in the step cache" if step.name in cached else "to run"
        out.line(f"{number}. {step.name}: {step.title} [{state}]")
        out.facts(_facts(step))


def _facts(step: Step) -> list[tuple[str, str | None]]:
    from engine_pipeline.cli.render import size

    return [
        ("command", _wrapped(step.argv)),
        ("reads", ", ".join(step.inputs) or None),
        ("writes", ", ".join(step.outputs)),
        ("needs", f"{size(step.disk_bytes)} disk, {size(step.ram_bytes)} memory"),
        (
            "network",
            f"yes, with {len(step.env)} variables of the hub client" if step.network else None,
        ),
        ("image", step.image),
        ("key", step.key.short),
    ]


def _wrapped(argv: tuple[str, ...], width: int = 84) -> str:
    """The command over several lines, each argument whole."""
    lines = [""]
    for word in (shlex.quote(part) if not part.startswith("{") else part for part in argv):
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}".lstrip() if len(lines) == 1 else f"{lines[-1]} {word}"
    return "\n".join(lines)
