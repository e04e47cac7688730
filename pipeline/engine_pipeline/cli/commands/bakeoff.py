"""`enginectl bakeoff`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.report_forms import refuse_twice, refuse_without_place

if TYPE_CHECKING:
    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell

_FORMS = (".html", ".md", ".json")


@verb("bakeoff")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of FILE, for editors.")
@click.option("--again", is_flag=True, help="Measure anew what was measured before.")
@click.option(
    "--workdir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where measurements are kept [default: in the cache].",
)
@click.option(
    "--report",
    "report_files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also write the result to FILE: .html, .md or .json; may be repeated.",
)
def command(
    shell: Shell,
    file: Path | None,
    schema: bool,
    again: bool,
    workdir: Path | None,
    report_files: tuple[Path, ...],
) -> Answer:
    """Compare engines and endpoints under one load, and say which one to take.

    FILE names the contestants, suites, loads, prices, limits and priorities; see docs/bakeoff.md.
    Each contestant is measured alone, one after the other; run again, what is measured is used, and
    a changed price or limit is judged in a moment. Exit 0 with a recommendation, 3 if everybody
    misses a limit, 4 if the evidence does not tell, as where others disturbed the times.
    """
    from engine_pipeline.bakeoff.file import REFERENCE, BakeoffFile
    from engine_pipeline.bakeoff.kept import write_whole
    from engine_pipeline.bakeoff.measure import self_test
    from engine_pipeline.bakeoff.measured import Measured
    from engine_pipeline.bakeoff.result import judge_bakeoff
    from engine_pipeline.bakeoff.run import run_bakeoff
    from engine_pipeline.bakeoff.trial import trial_of
    from engine_pipeline.cli.contesting import entries_of
    from engine_pipeline.cli.endpoints import judge_of
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_embeddings import embeddings_of
    from engine_pipeline.yaml_file import validated

    if schema:
        return _schema()
    if file is None:
        raise click.UsageError("name the FILE of a bake-off, or ask for its --schema")
    _check(report_files)
    wanted = validated(file, BakeoffFile, reference=REFERENCE)
    trial = trial_of(
        wanted,
        [shell.suite(name) for name in wanted.suites],
        today=utc_now().date(),
        workloads=shell.workloads(wanted.lanes),
        judge=judge_of(wanted.judge),
        embeddings=embeddings_of(shell, wanted.embeddings, load_timeout_s=wanted.load_timeout_s),
    )
    place = workdir or shell.cache_dir / "bakeoffs"
    found = run_bakeoff(
        trial,
        entries_of(shell, wanted, os.environ),
        workdir=place,
        again=again,
        self_test=lambda: self_test(trial, place, shell.progress),
        progress=shell.progress,
        clock=utc_now,
    )
    shell.close()
    result = judge_bakeoff(
        wanted,
        {name: made for name, made in found.items() if isinstance(made, Measured)},
        {name: made for name, made in found.items() if not isinstance(made, Measured)},
        utc_now(),
    )
    for path in report_files:
        write_whole(path, _in_form(result, path.suffix).encode())
    return _answer(result, report_files)


def _check(report_files: tuple[Path, ...]) -> None:
    """Refuse before an hour of measuring what could not be written after it."""
    refuse_twice(report_files)
    for path in report_files:
        if path.suffix not in _FORMS:
            raise click.UsageError(f"{path}: the suffix picks the form, want {', '.join(_FORMS)}")
        refuse_without_place(path)


def _in_form(result: BakeoffResult, suffix: str) -> str:
    if suffix == ".md":
        from engine_pipeline.bakeoff.markdown import to_markdown

        return to_markdown(result)
    if suffix == ".html":
        from engine_pipeline.bakeoff.page import to_html

        return to_html(result)
    return result.model_dump_json(indent=2, by_alias=True) + "\n"


def _schema() -> Answer:
    import json

    from engine_pipeline.bakeoff.schema import bakeoff_schema
    from engine_pipeline.cli.answer import Answer

    document = bakeoff_schema()

    def page(out: Page) -> None:
        out.line(json.dumps(document, indent=2))

    return Answer(document={"schema": document}, page=page)


def _answer(result: BakeoffResult, written: tuple[Path, ...]) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_bakeoff import draw
    from engine_pipeline.gates.outcome import exit_code

    document = result.model_dump(mode="json", by_alias=True)
    document["outcome"] = str(result.outcome)
    document["files"] = [str(path) for path in written]

    def page(out: Page) -> None:
        draw(out, result)
        out.facts([("written", path) for path in written])

    return Answer(document=document, page=page, exit_code=exit_code(result.outcome))
