"""`enginectl calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.calibration import GateCalibration

_PER_CENT = click.FloatRange(0.1, 20)


@verb("calibrate")
@click.argument("gate")
@click.option("--engine", required=True, metavar="ENGINE", help="What is measured: a good engine.")
@click.option("--runs", type=click.IntRange(3, 1000), default=10, show_default=True)
@click.option(
    "--false-alarm",
    type=_PER_CENT,
    default=1.0,
    show_default=True,
    help="Per cent of runs in which this engine may miss a proposed bar.",
)
@click.option(
    "--miss",
    type=_PER_CENT,
    default=5.0,
    show_default=True,
    help="Per cent of runs in which the worsening that a bar catches may meet it.",
)
@click.option(
    "--max-foreign-cpu",
    type=click.FloatRange(1, 100),
    default=25.0,
    show_default=True,
    help="Per cent of processor time that others may use in a run that counts.",
)
def command(
    shell: Shell,
    gate: str,
    engine: str,
    runs: int,
    false_alarm: float,
    miss: float,
    max_foreign_cpu: float,
) -> Answer:
    """Measure ENGINE under the load of GATE again and again, and say where the bars stand.

    Mean, deviation and n of each speed bar go to golden_prompts/SUITE/calibration/, a file to
    commit; `enginectl validate` warns of bars that fail by chance or can never fail. Nothing else
    is changed: a bar is moved by whoever edits channels.yaml.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.calibrate import calibrate
    from engine_pipeline.gates.calibration import ErrorRates, warnings
    from engine_pipeline.gates.calibration_file import keep
    from engine_pipeline.gates.scratch import scratch
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.promote.release import lock_of, runtime_config
    from engine_registry.errors import InvalidInput

    policy = shell.policies.gate(gate)
    suite = shell.suite(policy.suite)
    if policy.performance is None:
        raise InvalidInput(
            f"gate {gate} measures no speed, so there is no bar to calibrate",
            hint=f"add `performance:` to gate {gate} in channels.yaml",
            reference="gate-without-bars",
        )
    digest = shell.registry.resolve_engine(engine)
    record = latest_record(shell.registry.engines.records(digest))
    lock = lock_of(shell.registry, record)
    device = shell.device(record)
    with scratch(shell.cache_dir / "gates") as directory:
        engine_dir = directory / "engine"
        shell.registry.engines.materialise(digest, engine_dir)
        found = calibrate(
            engine=digest,
            starter=Starter(
                backend=shell.backend(record.kind),
                engine_dir=engine_dir,
                runtime_config=runtime_config(lock),
                runtime=device.runtime,
                log_path=directory / "server.log",
                progress=shell.progress,
                timeout_s=policy.load_timeout_s,
                place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
            ),
            bars=policy.performance,
            rates=ErrorRates(false_alarm=false_alarm / 100, miss=miss / 100),
            runs=runs,
            max_foreign_cpu=max_foreign_cpu / 100,
            timeout_s=policy.timeout_s,
            progress=shell.progress,
            clock=utc_now,
        )
    path = keep(shell.suites_dir / suite.name, device.host_class, gate, found)
    shell.close()
    said = warnings(gate, policy, found)

    document = {
        "gate": gate,
        "file": str(path),
        "calibration": found.model_dump(mode="json"),
        "warnings": said,
    }
    return Answer(document=document, page=lambda out: _draw(out, found, said, path))


def _draw(out: Page, found: GateCalibration, said: list[str], path: Path) -> None:
    out.table(
        ("bar", "now", "mean", "deviation", "n", "proposed", "catches"),
        [
            (
                name,
                "-" if one.bar is None else f"{one.bar:g}",
                f"{one.mean:g}",
                f"{one.deviation:g}",
                str(one.n),
                f"{one.proposed:g}",
                f"{one.catches:.0%} worse",
            )
            for name, one in found.bars.items()
        ],
    )
    for line in said:
        out.verdict("warning", line)
    out.facts([("kept in", path), ("runs dropped", found.dropped)])
