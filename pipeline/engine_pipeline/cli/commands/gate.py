"""`enginectl gate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Report
    from engine_registry.digest import Digest
    from engine_registry.record import Record


@verb("gate")
@click.argument("engine")
@click.option(
    "--gate",
    "names",
    multiple=True,
    metavar="NAME",
    help="Gate of channels.yaml; default: every gate that a channel of this product asks for.",
)
@click.option("--again", is_flag=True, help="Judge again even if a report of this gate decides.")
def command(shell: Shell, engine: str, names: tuple[str, ...], again: bool) -> Answer:
    """Judge ENGINE with golden prompts and measured speed, on this machine.

    The engine is loaded by a real server, asked, measured, and the report is attached to it. Exit 3
    if it failed, 4 if it could not be judged or the evidence is too thin.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.gates.outcome import combine, exit_code

    digest = shell.registry.resolve_engine(engine)
    record = latest_record(shell.registry.engines.records(digest))
    gates = names or shell.gates_for(record)
    judged = [_judge(shell, record, name, again=again) for name in gates]
    shell.close()
    document = {
        "engine": str(digest),
        "outcome": str(combine(report.outcome for report, _, _ in judged)),
        "gates": [
            {
                "gate": report.gate,
                "outcome": str(report.outcome),
                "reused": reused,
                "report": str(attached),
                "reasons": list(report.reasons),
            }
            for report, attached, reused in judged
        ],
    }
    code = exit_code(combine(report.outcome for report, _, _ in judged))

    def page(out: Page) -> None:
        for report, attached, reused in judged:
            _draw(out, report, attached, reused=reused)

    return Answer(document=document, page=page, exit_code=code)


def _judge(shell: Shell, record: Record, name: str, *, again: bool) -> tuple[Report, Digest, bool]:
    """The report of one gate, its digest, and whether it was there already."""
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.run import run_gate
    from engine_pipeline.promote.evidence import deciding_report
    from engine_pipeline.promote.release import lock_of, runtime_config

    policy = shell.policies.gate(name)
    suite = shell.suite(policy.suite)
    device = shell.device(record)
    shell.registry.engines.check_engine(record.engine)
    if not again:
        known = deciding_report(
            shell.registry, record.engine, name, policy.digest, suite.digest, device
        )
        if known is not None:
            shell.progress.note(f"{name}: reused report {known[1].short}; --again judges anew")
            return *known, True
    lock = lock_of(shell.registry, record)
    report, attached = run_gate(
        registry=shell.registry,
        engine=record.engine,
        gate=name,
        policy=policy,
        suite=suite,
        backend=shell.backend(record.kind),
        runtime_config=runtime_config(lock),
        device=device,
        progress=shell.progress,
        clock=utc_now,
        workdir=shell.cache_dir / "gates",
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
    )
    return report, attached, False


def _draw(out: Page, report: Report, attached: Digest, *, reused: bool) -> None:
    from engine_pipeline.cli.render import when

    known = f", judged before at {when(report.finished_at)}" if reused else ""
    out.verdict(str(report.outcome), f"gate {report.gate} on engine {report.engine.short}{known}")
    out.table(
        ("examined", "outcome", "why"),
        [(f.name, str(f.outcome), f.reason) for f in report.findings],
    )
    failed = [case for case in report.cases if case.outcome != "passed"]
    if failed:
        out.line(f"cases that did not pass ({len(failed)} of {len(report.cases)})")
        out.table(("case", "outcome", "first reason"), [_case_row(case) for case in failed])
    out.facts(
        [
            ("report", attached),
            ("read it", f"enginectl show {report.engine.short} --report {attached.short}"),
        ]
    )


def _case_row(case: Any) -> tuple[str, str, str]:
    for attempt in case.attempts:
        if attempt.error:
            return case.id, str(case.outcome), attempt.error
        for check in attempt.checks:
            if not check.passed:
                return case.id, str(case.outcome), check.reason
    return case.id, str(case.outcome), "-"
