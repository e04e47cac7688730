"""`enginectl gate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import signing, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.github import GitHubJob
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Report
    from engine_registry.digest import Digest


@verb("gate")
@click.argument("engine")
@click.option(
    "--gate",
    "names",
    multiple=True,
    metavar="NAME",
    help="Gate of channels.yaml; default: every gate that a channel of this product asks for.",
)
@click.option(
    "--against",
    metavar="ENGINE|CHANNEL",
    help="Compare speed with this engine, or what is live on this channel, not with the policy's.",
)
@click.option(
    "--parent",
    "parents",
    multiple=True,
    metavar="SPEC|ENGINE|CHANNEL",
    help="Compare answers with this parent, not with the policy's; may be repeated.",
)
@click.option("--again", is_flag=True, help="Judge again even if a report of this gate decides.")
@click.option(
    "--report",
    "report_files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also write the report to FILE: .html, .md, .json or .xml (JUnit); may be repeated.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the report to FILE as JUnit XML, whatever its suffix.",
)
@signing
def command(
    shell: Shell,
    engine: str,
    names: tuple[str, ...],
    against: str | None,
    parents: tuple[str, ...],
    again: bool,
    report_files: tuple[Path, ...],
    junit: Path | None,
    key_file: Path | None,
) -> Answer:
    """Judge ENGINE with golden prompts and measured speed, on this machine.

    The engine is loaded by a real server, asked, measured, and the report is attached to it. Exit 3
    if it failed, 4 if it could not be judged or the evidence is too thin. With --sign, a report
    that this key has not signed is made anew, not reused. A gate with `paired:` also measures the
    live engine, in turn with this one; see docs/speed.md. One with `parity:` compares its answers
    with its parents'; see docs/parity.md. In a GitHub job, what did not pass is also
    annotated, and the report is added to the job's summary.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.judging import judge
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.report_forms import checked_files, in_form, write_whole
    from engine_pipeline.gates.outcome import combine, exit_code

    key = shell.signing_key(key_file)
    digest = shell.registry.resolve_engine(engine)
    record = latest_record(shell.registry.engines.records(digest))
    gates = names or shell.gates_for(record)
    files = checked_files(report_files, junit, gates)
    judged = [
        judge(shell, record, name, again=again, key=key, against=against, parents=parents)
        for name in gates
    ]
    shell.close()
    reports = [report for report, _, _ in judged]
    for path, form in files:
        write_whole(path, in_form(shell, reports, form))
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
        "files": [str(path) for path, _ in files],
    }
    code = exit_code(combine(report.outcome for report, _, _ in judged))

    def page(out: Page) -> None:
        for report, attached, reused in judged:
            _draw(out, report, attached, reused=reused)
        out.facts([("written", path) for path, _ in files])

    answer = Answer(document=document, page=page, exit_code=code)
    return answer if shell.github_job is None else _told(shell, shell.github_job, reports, answer)


def _told(shell: Shell, job: GitHubJob, reports: list[Report], answer: Answer) -> Answer:
    """The answer in a GitHub job: annotated on the stream that holds nothing else by then."""
    import dataclasses

    job.summarise(reports, shell.progress)
    if click.get_current_context().obj.wants_json:
        job.annotate(reports, sys.stderr)
        return answer

    def page(out: Page) -> None:
        job.annotate(reports, sys.stdout)
        with job.deaf():
            answer.page(out)

    return dataclasses.replace(answer, page=page)


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
