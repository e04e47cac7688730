"""`enginectl golden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.references import OtherAnswer, Reviewed

_SHOWN_DIFF_LINES = 200
_SHOWN_CHARS = 60
_SHOWN_BEFORE = 12


@verb("golden")
@click.argument("action", type=click.Choice(["record", "review"]))
@click.argument("engine")
@click.option("--suite", "name", required=True, metavar="NAME", help="A folder of golden_prompts/.")
@click.option(
    "--answers",
    type=click.Choice(["known", "all", "none"]),
    default="known",
    show_default=True,
    help="Whose answers: of cases that have a recorded one, of every case, or none.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="How often each case is asked; the most frequent answer is recorded.",
)
def command(shell: Shell, action: str, engine: str, name: str, answers: str, runs: int) -> Answer:
    """References of a suite, taken from ENGINE: the unquantised one, as a rule.

    `record` writes what the engine's server makes of the chats in template.yaml, prompt and tokens,
    or of some to start with if there is no such file; and, as `recorded`, the answers of cases that
    have one, in the files of cases, where no other line changes. An answer that fails the checks of
    its case is not recorded. `review` writes nothing: it shows what recording this engine would
    change.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.recorded_file import write_case_file
    from engine_pipeline.gates.template_file import TEMPLATE_FILE, write_template

    suite_dir = shell.suites_dir / name
    path = suite_dir / TEMPLATE_FILE
    found = _reviewed(shell, engine, name, answers, runs, on=f"{utc_now():%Y-%m-%d}")
    writes = action == "record" and bool(found.diff)
    changed = _case_texts(suite_dir, found) if action == "record" else {}
    for file, text in changed.items():
        write_case_file(file, text)
    if writes:
        write_template(suite_dir, found.text)
    shell.close()
    document: dict[str, Any] = {
        "suite": name,
        "file": str(path),
        "changes": bool(found.diff),
        "written": writes,
        "diff": list(found.diff),
        "answers_compared": found.compared,
        "other_answers": [
            {
                "case": one.case,
                "recorded": one.recorded,
                "now": one.now.text,
                "agreement": one.now.agreement,
                "passed": one.passed,
            }
            for one in found.answers
        ],
        "unanswered": found.unanswered,
        "case_files_written": [str(file) for file in changed],
    }

    def page(out: Page) -> None:
        if not found.diff:
            out.verdict("ok", f"{path}: this engine makes the same of every chat")
        elif writes:
            out.verdict("ok", f"{path}: written; look at it with `git diff`, then commit it")
        else:
            out.line(f"{path}: recording this engine would change")
            for line in found.diff[:_SHOWN_DIFF_LINES]:
                out.line(line)
        _draw_answers(out, found, action, list(changed))

    return Answer(document=document, page=page)


def _case_texts(suite_dir: Path, found: Reviewed) -> dict[Path, str]:
    """The files of cases that change, with their new texts; all are made before any is written."""
    from engine_pipeline.gates.recorded_file import with_recorded
    from engine_pipeline.gates.suite import SuiteFile
    from engine_pipeline.yaml_file import validated

    if not found.recordable:
        return {}
    texts = {}
    for file_name in validated(suite_dir / "suite.yaml", SuiteFile).cases:
        text = with_recorded(suite_dir / file_name, found.recordable)
        if text is not None:
            texts[suite_dir / file_name] = text
    return texts


def _reviewed(
    shell: Shell, engine: str, name: str, answers: str, runs: int, *, on: str
) -> Reviewed:
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.references import review
    from engine_pipeline.gates.scratch import scratch
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.gates.suite import Reference
    from engine_pipeline.promote.release import lock_of, runtime_config

    suite = shell.suite(name)
    digest = shell.registry.resolve_engine(engine)
    record = latest_record(shell.registry.engines.records(digest))
    lock = lock_of(shell.registry, record)
    runtime = ", ".join(f"{n} {v}" for n, v in sorted(record.platform.runtime.items()))
    known = suite.template.reference if suite.template is not None else None
    note = f"Recorded on {on} from {runtime or record.kind}."
    if known is not None and known.engine == digest:
        note = known.note  # recorded again from the same engine: no change to show
    reference = Reference(spec=record.spec, engine=digest, note=note)
    with scratch(shell.cache_dir / "gates") as directory:
        engine_dir = directory / "engine"
        shell.registry.engines.materialise(digest, engine_dir)
        starter = Starter(
            backend=shell.backend(record.kind),
            engine_dir=engine_dir,
            runtime_config=runtime_config(lock),
            runtime=record.platform.runtime,
            log_path=directory / "server.log",
            progress=shell.progress,
            timeout_s=1800.0,
            place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
        )
        return review(
            starter,
            suite,
            shell.suites_dir / name,
            reference,
            timeout_s=120.0,
            cases=[
                case
                for case in suite.cases
                if answers == "all" or (answers == "known" and case.recorded is not None)
            ],
            runs=runs,
            progress=shell.progress,
        )


def _draw_answers(out: Page, found: Reviewed, action: str, files: list[Path]) -> None:
    if found.compared:
        out.line(f"answers: {found.compared} asked, {len(found.answers)} are others now")
    if found.answers:
        out.table(
            ("case", "passes", "recorded", "now"),
            [
                (one.case, "yes" if one.passed else "no", *_from_where_they_part(one))
                for one in found.answers
            ],
        )
    for name, why in found.unanswered.items():
        out.verdict("warning", f"case {name} was not answered: {why}")
    if action == "review":
        return
    for file in files:
        out.verdict("ok", f"{file}: answers written; look at them with `git diff`")
    if refused := [one.case for one in found.answers if not one.passed]:
        out.verdict(
            "warning",
            f"not recorded, the answer fails the checks of its case: {', '.join(refused)}",
        )


def _from_where_they_part(one: OtherAnswer) -> tuple[str, str]:
    alike = 0
    if one.recorded is None:
        return "-", " ".join(one.now.text[:_SHOWN_CHARS].split())
    for mine, theirs in zip(one.recorded, one.now.text, strict=False):
        if mine != theirs:
            break
        alike += 1
    start = max(alike - _SHOWN_BEFORE, 0)
    dots = "…" if start else ""
    recorded, now = (
        f"{dots}{' '.join(text[start : start + _SHOWN_CHARS].split())}"
        for text in (one.recorded, one.now.text)
    )
    return recorded, now
