"""`enginectl golden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
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
def command(shell: Shell, action: str, engine: str, name: str) -> Answer:
    """References of a suite, taken from ENGINE: the unquantised one, as a rule.

    `record` writes what the engine's server makes of the chats in template.yaml, prompt and tokens,
    or of some to start with if there is no such file. `review` writes nothing: it shows what
    recording this engine would change there, and which cases it answers otherwise than recorded.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.template_file import TEMPLATE_FILE, write_template

    suite_dir = shell.suites_dir / name
    path = suite_dir / TEMPLATE_FILE
    found = _reviewed(
        shell, engine, name, with_answers=action == "review", on=f"{utc_now():%Y-%m-%d}"
    )
    writes = action == "record" and bool(found.diff)
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
            {"case": one.case, "recorded": one.recorded, "now": one.now, "passed": one.passed}
            for one in found.answers
        ],
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
        if action == "review":
            _draw_answers(out, found)

    return Answer(document=document, page=page)


def _reviewed(shell: Shell, engine: str, name: str, *, with_answers: bool, on: str) -> Reviewed:
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
            with_answers=with_answers,
            progress=shell.progress,
        )


def _draw_answers(out: Page, found: Reviewed) -> None:
    out.line(f"recorded answers: {found.compared} asked, {len(found.answers)} are others now")
    if found.answers:
        out.table(
            ("case", "still passes", "recorded", "now"),
            [
                (one.case, "yes" if one.passed else "no", *_from_where_they_part(one))
                for one in found.answers
            ],
        )


def _from_where_they_part(one: OtherAnswer) -> tuple[str, str]:
    alike = 0
    for mine, theirs in zip(one.recorded, one.now, strict=False):
        if mine != theirs:
            break
        alike += 1
    start = max(alike - _SHOWN_BEFORE, 0)
    dots = "…" if start else ""
    recorded, now = (
        f"{dots}{' '.join(text[start : start + _SHOWN_CHARS].split())}"
        for text in (one.recorded, one.now)
    )
    return recorded, now
