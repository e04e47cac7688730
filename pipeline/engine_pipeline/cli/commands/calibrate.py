"""`enginectl calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.number_option import PerCent, WholeNumber
from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.calibrate import Calibrating, Part
    from engine_pipeline.gates.calibration import (
        ErrorRates,
        WorthCatching,
    )
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.starter import Starter
    from engine_registry.record import Record

_ERROR_RATE = PerCent(0.1, 20)
_PARTS = ("quality", "speed", "parity")


@verb("calibrate")
@click.argument("gate")
@click.option("--engine", required=True, metavar="ENGINE", help="What is measured: a good engine.")
@click.option("--runs", type=WholeNumber(3, 1000), default=10, show_default=True)
@click.option(
    "--only",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Measure only this part of the gate [default: all it has bars for].",
)
@click.option(
    "--false-alarm",
    type=_ERROR_RATE,
    default=1.0,
    show_default=True,
    help="Per cent of runs in which this engine may miss a proposed bar.",
)
@click.option(
    "--miss",
    type=_ERROR_RATE,
    default=5.0,
    show_default=True,
    help="Per cent of runs in which the worsening that a bar catches may meet it.",
)
@click.option(
    "--smallest-change",
    type=PerCent(1, 100),
    default=10.0,
    show_default=True,
    help="Per cent of a time or a rate: the smallest worsening worth catching.",
)
@click.option(
    "--smallest-drop",
    type=PerCent(0.1, 50),
    default=5.0,
    show_default=True,
    help="Per cent of the cases: the smallest drop of a score worth catching.",
)
@click.option(
    "--max-foreign-cpu",
    type=PerCent(1, 100),
    default=25.0,
    show_default=True,
    help="Per cent of processor time that others may use in a run whose speed counts.",
)
def command(
    shell: Shell,
    gate: str,
    engine: str,
    runs: int,
    only: tuple[str, ...],
    false_alarm: float,
    miss: float,
    smallest_change: float,
    smallest_drop: float,
    max_foreign_cpu: float,
) -> Answer:
    """Measure ENGINE as GATE does, again and again, and say where the bars stand.

    Mean, deviation and n of every bar on answers, speed, lanes and parity go to
    golden_prompts/SUITE/calibration/, a file to commit; `enginectl validate` warns of bars that
    fail by chance or can never fail. Nothing else is changed: a bar is moved by whoever edits
    channels.yaml.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.judging import refuse_spec
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.say_calibration import draw
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.calibrate import Part, calibrate
    from engine_pipeline.gates.calibration import ErrorRates, WorthCatching, warnings
    from engine_pipeline.gates.calibration_bars import bars_of, basis_of
    from engine_pipeline.gates.calibration_file import check_kept, keep
    from engine_pipeline.gates.policy import check_fits
    from engine_pipeline.gates.scratch import scratch

    refuse_spec(engine)
    policy = shell.policies.gate(gate)
    suite = shell.suite(policy.suite)
    check_fits(policy, suite)
    parts = frozenset(Part(one) for one in only or _PARTS)
    _refuse_nothing_to_measure(shell, gate, parts)
    record = latest_record(shell.registry.engines.records(shell.registry.resolve_engine(engine)))
    host_class = shell.device(record).host_class
    check_kept(shell.suites_dir / suite.name, host_class)
    rates = ErrorRates(false_alarm=false_alarm / 100, miss=miss / 100)
    worth = WorthCatching(change=smallest_change / 100, drop=smallest_drop / 100)
    with scratch(shell.cache_dir / "gates") as directory:
        found = calibrate(
            _what(shell, record, gate, parts, rates, worth, max_foreign_cpu / 100, directory),
            runs=runs,
            progress=shell.progress,
            clock=utc_now,
        )
    path = keep(shell.suites_dir / suite.name, host_class, gate, found)
    shell.close()
    workloads = shell.workloads(policy.lanes)
    said = warnings(
        gate, bars_of(policy, suite, workloads), basis_of(policy, suite, workloads), found
    )
    if found.dropped and found.runs - found.dropped < 3:
        said.append(
            f"gate {gate}: speed is not calibrated: {found.runs - found.dropped} of {found.runs} "
            "runs count, 3 are needed; run again when the machine is quiet, with --only speed"
        )
    document = {
        "gate": gate,
        "file": str(path),
        "calibration": found.model_dump(mode="json"),
        "warnings": said,
    }
    return Answer(document=document, page=lambda out: draw(out, found, said, path))


def _refuse_nothing_to_measure(shell: Shell, gate: str, parts: Iterable[Part]) -> None:
    from engine_pipeline.gates.calibrate import Part
    from engine_registry.errors import InvalidInput

    policy = shell.policies.gate(gate)
    has = {
        "quality": True,
        "speed": policy.performance is not None or policy.lanes is not None,
        "parity": policy.parity is not None,
    }
    if not any(has[part] for part in parts):
        names = ", ".join(sorted(parts))
        paired = (
            "; those of `paired:` are measured against the live engine and are not calibrated"
            if policy.paired is not None and Part.SPEED in parts
            else ""
        )
        raise InvalidInput(
            f"gate {gate} has no bars on {names}, so there is nothing to calibrate{paired}",
            hint=f"give gate {gate} such bars in channels.yaml, or leave --only out",
            reference="gate-without-bars",
        )


def _what(
    shell: Shell,
    record: Record,
    gate: str,
    parts: frozenset[Part],
    rates: ErrorRates,
    worth: WorthCatching,
    max_foreign_cpu: float,
    directory: Path,
) -> Calibrating:
    from engine_pipeline.cli.endpoints import judge_of
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_embeddings import embeddings_of
    from engine_pipeline.gates.advising import Advice
    from engine_pipeline.gates.calibrate import Calibrating
    from engine_pipeline.gates.python_check import resolve_checks

    policy = shell.policies.gate(gate)
    suite = shell.suite(policy.suite)
    starter = _starter(shell, record, directory, policy.load_timeout_s)
    today = utc_now().date()
    return Calibrating(
        engine=record.engine,
        starter=starter,
        policy=policy,
        suite=suite,
        advice=Advice(
            today=today,
            judge=judge_of(policy.judge),
            embeddings=embeddings_of(
                shell, policy.embeddings, load_timeout_s=policy.load_timeout_s
            ),
            code=resolve_checks(suite),
        ),
        workloads=shell.workloads(policy.lanes),
        compare=_comparing(shell, record, gate, starter, directory),
        parts=parts,
        rates=rates,
        worth=worth,
        max_foreign_cpu=max_foreign_cpu,
    )


def _starter(shell: Shell, record: Record, directory: Path, timeout_s: float) -> Starter:
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.promote.release import lock_of, runtime_config

    lock = lock_of(shell.registry, record)
    engine_dir = directory / "engine"
    shell.registry.engines.materialise(record.engine, engine_dir)
    return Starter(
        backend=shell.backend(record.kind),
        engine_dir=engine_dir,
        runtime_config=runtime_config(lock),
        runtime=shell.device(record).runtime,
        log_path=directory / "server.log",
        progress=shell.progress,
        timeout_s=timeout_s,
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
    )


def _comparing(
    shell: Shell, record: Record, gate: str, starter: Starter, directory: Path
) -> Callable[[], Sequence[ParityResult]]:
    """Compares the engine with the gate's parents once; the parents are asked the first time."""
    from engine_pipeline.cli.parents import parents_for
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.parity_gate import compare_with_parents

    policy = shell.policies.gate(gate)
    parents = parents_for(shell, record, policy)

    def compare() -> Sequence[ParityResult]:
        return compare_with_parents(
            registry=shell.registry,
            candidate=starter,
            parents=parents,
            policy=policy,
            suite=shell.suite(policy.suite),
            device=shell.device(record),
            today=utc_now().date(),
            loads=True,
            progress=shell.progress,
            directory=directory,
        )

    return compare
