"""`enginectl bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.bisect.bisect import Bisection, Criterion, Try
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Report
    from engine_pipeline.spec.lock import BuildLock
    from engine_registry.digest import Digest


@verb("bisect")
@click.argument("good")
@click.argument("bad")
@click.option("--gate", "gate", metavar="NAME", help="Gate to judge by [default: the product's].")
@click.option("--case", metavar="ID", help="Good means that this golden case passes.")
@click.option("--bar", metavar="NAME", help="Good means that this line of the report passes.")
@click.option("--plan", "plans", is_flag=True, help="Only name the inputs that would be tried.")
@click.option(
    "--runner",
    type=click.Choice(["docker", "local"]),
    default="docker",
    show_default=True,
    help="Where steps with an image run: in it, or with the tools on PATH.",
)
def command(
    shell: Shell,
    good: str,
    bad: str,
    gate: str | None,
    case: str | None,
    bar: str | None,
    plans: bool,
    runner: str,
) -> Answer:
    """Name the input that made a GOOD engine BAD, by building and judging what lies between.

    Each end is a spec, a lock file, a build key or an engine. Engines and reports that exist are
    used; run again after an interruption, it goes on where it was. N inputs take about log2(N)
    builds and one more.
    """
    from engine_pipeline.bisect.bisect import Criterion, bisect
    from engine_pipeline.bisect.inputs import changes_between, host_differences
    from engine_pipeline.spec.lock import build_key

    if case is not None and bar is not None:
        raise click.UsageError("--case and --bar exclude each other")
    criterion = Criterion(case=case, bar=bar)
    if gate is not None:
        _check(shell, gate, criterion)
    (one, one_host), (other, other_host) = _lock(shell, good), _lock(shell, bad)
    judged_by = gate or ""
    if gate is None and not (plans and criterion == Criterion()):
        judged_by = _gate_of(shell, one)
        _check(shell, judged_by, criterion)
    here = _host_here(shell, one)
    # What nobody has built yet is built here.
    fixed = host_differences(
        here if one_host is None else one_host, here if other_host is None else other_host, here
    )
    if plans:
        built = sum(
            shell.registry.engines.find_by_key(build_key(lock, here)) is not None
            for lock in (one, other)
        )
        return _planned(changes_between(one, other), built, fixed)
    found = bisect(
        one,
        other,
        criterion,
        judge=lambda lock: _judge(shell, lock, judged_by, runner),
        say=lambda done: shell.progress.note(_line(done)),
        fixed=fixed,
    )
    shell.close()
    return _answer(found)


def _gate_of(shell: Shell, lock: BuildLock) -> str:
    """The first gate that a channel of the product asks for."""
    from engine_pipeline.cli.judging import gates_of
    from engine_registry.refs import ProductRef

    return gates_of(shell, ProductRef(lock.spec.model.name, lock.spec.target.sku))[0]


def _check(shell: Shell, gate: str, criterion: Criterion) -> None:
    """Before anything is looked up or built: whether there is such a gate, case and line."""
    from engine_pipeline.bisect.lines import check_criterion

    policy = shell.policies.gate(gate)
    check_criterion(criterion, gate, policy, shell.suite(policy.suite))


def _host_here(shell: Shell, lock: BuildLock) -> dict[str, str]:
    """What this machine adds to the key of whatever is built on the way."""
    from engine_pipeline.build.host import host_inputs

    steps = shell.backend(lock.spec.backend.kind).plan(lock)
    return host_inputs(lock.spec.target, steps, shell.machine)


def _lock(shell: Shell, text: str) -> tuple[BuildLock, dict[str, str] | None]:
    """The lock that is meant, and what the machine that built it added; None: not built yet.

    The place of its files is made independent of where the lock lies.
    """
    from engine_pipeline.cli.locked import lock_named

    lock, host = lock_named(shell, text)
    base = Path(text).absolute().parent if Path(text).exists() else None
    if base is None:
        return lock, host
    plain = lock.model_dump(mode="json")
    for place in (plain["source"], plain["calibration"], plain["spec"]["model"]):
        source = place["source"] if place else ""
        if source.startswith("file://") and not source.startswith("file:///"):
            place["source"] = f"file://{base / source.removeprefix('file://')}"
    return type(lock).model_validate(plain), host


def _judge(shell: Shell, lock: BuildLock, gate: str, runner: str) -> tuple[Digest, Report]:
    from engine_pipeline.build.build import build
    from engine_pipeline.cli.judging import judge
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_runs import StepLimits, runner_for
    from engine_pipeline.spec.hardware import refuse_impossible
    from engine_pipeline.spec.lock_file import lock_text

    refuse_impossible(lock.spec)
    place = shell.cache_dir / "bisect" / f"{lock.digest.hex}.lock.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(lock_text(lock))
    built = build(
        lock,
        place.read_bytes(),
        lock_path=place,
        registry=shell.registry,
        runner=runner_for(lock, runner, StepLimits()),
        cache=shell.step_cache,
        backend=shell.backend(lock.spec.backend.kind),
        machine=shell.machine,
        progress=shell.progress,
        actor=shell.actor,
        clock=utc_now,
    )
    record = next(
        record
        for record in shell.registry.engines.records(built.engine)
        if record.build_key == built.build_key
    )
    report, _, _ = judge(shell, record, gate, again=False, key=None)
    return built.engine, report


def _planned(changes: Any, built: int, fixed: tuple[str, ...]) -> Answer:
    """What would be tried; `built` ends are in the registry already."""
    from engine_pipeline.bisect.search import most_tries
    from engine_pipeline.cli.answer import Answer

    between = most_tries(len(changes)) if changes else 0
    document = {
        "changes": [{"name": c.name, "says": c.says} for c in changes],
        "ends_built": built,
        "most_between": between,
        "most_builds": (2 - built + between) if changes else 0,
        "fixed": list(fixed),
    }

    def page(out: Page) -> None:
        from engine_pipeline.cli.render import counted

        if changes:
            out.table(("input", "good → bad"), [(c.name, c.says) for c in changes])
            ends = ("both ends", "the other end", "neither end (both exist)")[built]
            more = f" and at most {counted(between, 'state')} between them" if between else ""
            out.line(f"{counted(len(changes), 'input')} to try; to build: {ends}{more}")
        else:
            out.line("no input of the engine differs that can be changed here")
        _draw_fixed(out, fixed)

    return Answer(document=document, page=page)


def _draw_fixed(out: Page, fixed: tuple[str, ...]) -> None:
    if fixed:
        out.line(f"differs too, cannot be changed here: {'; '.join(fixed)}")


def _answer(found: Bisection) -> Answer:
    from engine_pipeline.cli.answer import Answer

    document = {
        "suspects": list(found.blame.suspects),
        "before": list(found.blame.before),
        "alone": str(found.blame.alone),
        "changes": [{"name": c.name, "says": c.says} for c in found.changes],
        "tries": [
            {
                "changes": list(t.changes),
                "verdict": str(t.verdict),
                "engine": str(t.engine) if t.engine else None,
                "why": t.why,
            }
            for t in found.tries
        ],
        "left_out": list(found.left_out),
        "fixed": list(found.fixed),
    }

    def page(out: Page) -> None:
        _draw(out, found)

    return Answer(document=document, page=page)


def _draw(out: Page, found: Bisection) -> None:
    from engine_pipeline.bisect.search import Alone

    suspects = found.blame.suspects
    says = {change.name: change.says for change in found.changes}
    if len(suspects) == 1:
        out.verdict("found", f"{suspects[0]} is to blame: {says[suspects[0]]}")
    else:
        out.verdict("found", f"one of {', '.join(suspects)} is to blame; between them nothing")
        out.line("could be judged, as the table says")
    match found.blame.alone:
        case Alone.YES:
            out.line("  it is bad by itself")
        case Alone.NO:
            out.line(f"  by itself it is good: it takes one of {', '.join(found.blame.before)} too")
        case Alone.UNKNOWN:
            out.line("  whether it is bad by itself is not known")
    for change in found.changes:
        out.wrapped(f"{change.name}: {change.says}", "  ")
    out.table(("bad inputs in place", "verdict", "engine", "why"), [_row(t) for t in found.tries])
    if found.left_out:
        out.line(f"not tried, no input of an engine: {', '.join(found.left_out)}")
    _draw_fixed(out, found.fixed)


def _row(done: Try) -> tuple[str, str, str, str]:
    engine = done.engine.short if done.engine else "-"
    return ", ".join(done.changes) or "none", str(done.verdict), engine, done.why


def _line(done: Try) -> str:
    with_ = ", ".join(done.changes) or "nothing changed"
    return f"{done.verdict}: {with_}: {done.why}"
