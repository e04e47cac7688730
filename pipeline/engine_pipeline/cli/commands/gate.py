"""`enginectl gate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.number_option import Number
from engine_pipeline.cli.options import signing, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.github import GitHubJob
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Report
    from engine_registry.digest import Digest


@verb("gate")
@click.argument("engine", required=False)
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
@click.option(
    "--endpoint", metavar="URL", help="Judge a server that is running already, not ENGINE."
)
@click.option("--model", metavar="NAME", help="What the endpoint calls the model.")
@click.option(
    "--suite",
    metavar="NAME",
    help="With --endpoint: ask this folder of golden_prompts/, without a gate.",
)
@click.option(
    "--min-score",
    type=Number(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="With --suite: the least mean score over its cases.",
)
@click.option(
    "--api-key-env",
    metavar="VAR",
    help="With --endpoint: the environment variable that holds its key.",
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
    engine: str | None,
    names: tuple[str, ...],
    against: str | None,
    parents: tuple[str, ...],
    endpoint: str | None,
    model: str | None,
    suite: str | None,
    min_score: float,
    api_key_env: str | None,
    again: bool,
    report_files: tuple[Path, ...],
    junit: Path | None,
    sign_with: str | None,
) -> Answer:
    """Judge ENGINE with golden prompts and measured speed, on this machine.

    The engine is loaded by a real server, asked, measured, and the report is attached to it. Exit 3
    if it failed, 4 if it could not be judged or the evidence is too thin. With --sign, a report
    that this key or identity has not signed is made anew, not reused. A gate with `paired:` also
    measures the live engine, in turn with this one; see docs/speed.md. One with `parity:` compares
    its answers with its parents'; see docs/parity.md. In a GitHub job, what did not pass is also
    annotated, and the report is added to the job's summary. With --endpoint, a running server is
    judged under a --gate's bars or by a --suite; such a report is printed and written, and is
    evidence for no release.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.report_forms import checked_files, in_form, write_whole
    from engine_pipeline.gates.outcome import combine, exit_code

    judged: list[tuple[Report, Digest | None, bool]]
    if endpoint is not None:
        from engine_pipeline.cli.judging_endpoint import AskedEndpoint, judge_running

        _refuse(endpoint, engine=engine, against=against, parents=parents, again=again)
        asked = AskedEndpoint(url=endpoint, model=model, api_key_env=api_key_env)
        files = checked_files(report_files, junit, names or (suite or "",))
        judged = [
            (report, None, False)
            for report in judge_running(shell, asked, names, suite=suite, min_score=min_score)
        ]
    else:
        from engine_pipeline.cli.judging import gates_of, judge, refuse_spec
        from engine_pipeline.cli.lookup import latest_record
        from engine_registry.refs import ProductRef

        _refuse_without_endpoint(engine, model, suite, api_key_env)
        key = shell.signer(sign_with)
        refuse_spec(engine or "")
        digest = shell.registry.resolve_engine(engine or "")
        record = latest_record(shell.registry.engines.records(digest))
        gates = names or gates_of(shell, ProductRef(record.model, record.target))
        files = checked_files(report_files, junit, gates)
        judged = [
            judge(shell, record, name, again=again, key=key, against=against, parents=parents)
            for name in gates
        ]
    shell.close()
    reports = [report for report, _, _ in judged]
    for path, form in files:
        write_whole(path, in_form(shell, reports, form))
    document = _document(judged, [str(path) for path, _ in files])
    code = exit_code(combine(report.outcome for report in reports))

    def page(out: Page) -> None:
        for report, attached, reused in judged:
            _draw(out, report, attached, reused=reused)
        out.facts([("written", path) for path, _ in files])

    answer = Answer(document=document, page=page, exit_code=code)
    return answer if shell.github_job is None else _told(shell, shell.github_job, reports, answer)


def _refuse(endpoint: str, **given: object) -> None:
    """What has no meaning for a running server; a usage error names it."""
    for name, value in given.items():
        if value:
            option = {"engine": str(value), "parents": "--parent"}.get(name, f"--{name}")
            raise click.UsageError(f"{option} does not go with --endpoint {endpoint}")


def _refuse_without_endpoint(
    engine: str | None, model: str | None, suite: str | None, api_key_env: str | None
) -> None:
    if engine is None:
        raise click.UsageError("name an ENGINE, or a running server with --endpoint URL")
    for option, value in (("--model", model), ("--suite", suite), ("--api-key-env", api_key_env)):
        if value is not None:
            raise click.UsageError(f"{option} needs --endpoint URL")


def _document(judged: list[tuple[Report, Digest | None, bool]], files: list[str]) -> dict[str, Any]:
    from engine_pipeline.gates.outcome import combine

    return {
        **_subject(judged[0][0]),
        "outcome": str(combine(report.outcome for report, _, _ in judged)),
        "gates": [
            {
                "gate": report.gate,
                "outcome": str(report.outcome),
                "reused": reused,
                "report": None if attached is None else str(attached),
                "reasons": list(report.reasons),
            }
            for report, attached, reused in judged
        ],
        "files": files,
    }


def _subject(report: Report) -> dict[str, Any]:
    if report.endpoint is None:
        return {"engine": str(report.engine)}
    return {"endpoint": report.endpoint.model_dump(mode="json"), "attached": False}


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


def _draw(out: Page, report: Report, attached: Digest | None, *, reused: bool) -> None:
    from engine_pipeline.cli.render import when

    known = f", judged before at {when(report.finished_at)}" if reused else ""
    out.verdict(str(report.outcome), f"gate {report.gate} on {report.subject}{known}")
    out.table(
        ("examined", "outcome", "why"),
        [(f.name, str(f.outcome), f.reason) for f in report.findings],
    )
    failed = [case for case in report.cases if case.outcome != "passed"]
    if failed:
        out.line(f"cases that did not pass ({len(failed)} of {len(report.cases)})")
        out.table(("case", "outcome", "first reason"), [_case_row(case) for case in failed])
    if attached is None:
        out.line("nothing is attached: no endpoint proves which engine it serves")
        return
    out.facts(
        [
            ("report", attached),
            ("read it", f"enginectl show {report.judged_engine.short} --report {attached.short}"),
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
