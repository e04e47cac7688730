"""`enginectl suite`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.number_option import Number, WholeNumber
from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.gates.suite_import import Import

_SHOWN = 5


@verb("suite")
@click.argument("action", type=click.Choice(["import", "export"]))
@click.argument("subject", metavar="LOG|SUITE")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With import: the suite's folder, as golden_prompts/NAME; made if it is not there.",
)
@click.option(
    "--tag", default="captured", show_default=True, help="Tag of the cases, and their file's name."
)
@click.option("--owner", metavar="NAME", help="Of a suite that is made: who answers for it.")
@click.option("--model", metavar="NAME", help="Of a suite that is made: whom it is asked of.")
@click.option(
    "--max-tokens",
    type=WholeNumber(1, 8192),
    default=256,
    show_default=True,
    help="Of a suite that is made: the longest answer.",
)
@click.option(
    "--limit",
    type=WholeNumber(1, 2000),
    default=200,
    show_default=True,
    help="The most cases; of more, a sample that is the same every time.",
)
@click.option(
    "--ideal-as",
    type=click.Choice(["contains", "exact", "similar"]),
    help="Make this check of answers that come along; without it none is made of them.",
)
@click.option(
    "--at-least",
    type=Number(0.0, 1.0, min_open=True),
    metavar="COSINE",
    help="With --ideal-as similar: how near an answer must come.",
)
@click.option("--skip-invalid", is_flag=True, help="Leave out lines that are no chat.")
@click.option("--keep-secrets", is_flag=True, help="Keep what looks like a key or a password.")
def command(shell: Shell, action: str, subject: str, into: Path | None, **options: Any) -> Answer:
    """Bring captured chats into a suite, or write a suite's chats as JSON lines.

    `import` reads LOG, one JSON object a line with `messages` (and `tools`, `response_format`), or
    with `prompt`; wrapped requests of batch files and gateways too. Each question is taken once,
    under an id made of its content. A case has no check but that its answer is one, so it serves
    parity until somebody says what a good answer is. `export` writes the chats of SUITE to standard
    output.
    """
    if action == "export":
        _refuse_what_is_imports(into)
        return _export(shell.suite(subject))
    if into is None:
        raise click.UsageError("import needs --into golden_prompts/NAME")
    _check_place(shell, into)
    if (options["ideal_as"] == "similar") != (options["at_least"] is not None):
        raise click.UsageError("--ideal-as similar and --at-least COSINE go together")
    return _import(shell, Path(subject), into, options)


def _refuse_what_is_imports(into: Path | None) -> None:
    """Options of `import` that were typed for an export, which would do nothing with them."""
    context = click.get_current_context()
    typed = [
        option.opts[0]
        for option in context.command.params
        if option.name
        in {"into", "tag", "owner", "model", "max_tokens", "limit", "ideal_as"}
        | {"at_least", "skip_invalid", "keep_secrets"}
        and context.get_parameter_source(option.name or "")
        is click.core.ParameterSource.COMMANDLINE
    ]
    if typed:
        where = f"; write the lines to a file with `> {into.name}.jsonl`" if into else ""
        raise click.UsageError(f"{', '.join(typed)} goes with import, not with export{where}")


def _check_place(shell: Shell, into: Path) -> None:
    """Refuse a folder in which no gate would look for the suite."""
    if into.resolve().parent != shell.suites_dir.resolve():
        raise click.UsageError(
            f"--into {into}: gates look for suites in {shell.suites_dir}: "
            f"want --into {shell.suites_dir / into.name}"
        )


def _export(suite: Suite) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.gates.suite_jsonl import write_line

    lines = [write_line(case) for case in suite.cases]

    def page(out: Page) -> None:
        for line in lines:
            out.line(line)

    return Answer(document={"suite": suite.name, "lines": lines}, page=page)


def _import(shell: Shell, log: Path, into: Path, options: dict[str, Any]) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import counted
    from engine_pipeline.cli.slug_option import slug
    from engine_pipeline.gates.suite_import import case_files, read_log, some_lines, write_files

    slug(options["tag"], "--tag")
    known = _known(into)
    if known is None:
        if not (options["owner"] and options["model"]):
            raise click.UsageError(f"{into} is a new suite: name its --owner and its --model")
        slug(into.name, "--into")
        slug(options["model"], "--model")
    found = read_log(
        log,
        tag=options["tag"],
        ideal_as=options["ideal_as"],
        at_least=options["at_least"],
        limit=options["limit"],
        skips_invalid=options["skip_invalid"],
        keeps_secrets=options["keep_secrets"],
    )
    _warn(shell, log, found, kept=options["keep_secrets"])
    there = set() if known is None else {case.id for case in known.cases}
    fresh = [case for name, case in found.cases.items() if name not in there]
    files = case_files(fresh, options["tag"])
    names = list(files)
    if known is None and files:
        files["suite.yaml"] = _head(log, into, names, options)
    written = write_files(into, files) if files else ()
    document = {
        "suite": str(into),
        "files": [str(path) for path in written],
        "lines": found.lines,
        "cases": len(fresh),
        "duplicates": found.duplicates,
        "known": len(found.cases) - len(fresh),
        "left_out": found.left_out,
        "skipped": {str(number): why for number, why in found.skipped.items()},
        "secret_lines": found.secret_lines,
        "with_answer": found.answered,
        "ignored_fields": dict(sorted(found.ignored.items())),
    }

    def page(out: Page) -> None:
        cases, lines = counted(len(fresh), "case"), counted(found.lines, "line")
        out.verdict("ok", f"{cases} from {lines} of {log}")
        dropped = ", ".join(
            f"{name} ({count})" for name, count in found.ignored.most_common(_SHOWN)
        )
        out.facts(
            [
                ("written", "\n".join(map(str, written)) or "nothing"),
                ("asked before", found.duplicates or None),
                ("in the suite", document["known"] or None),
                ("over the limit", found.left_out or None),
                ("no chat", some_lines(list(found.skipped)) if found.skipped else None),
                ("not kept", dropped or None),
            ]
        )
        if found.answered and options["ideal_as"] is None:
            out.line(f"{found.answered} have an answer; --ideal-as contains makes checks of them")
        if known is not None and names:
            out.line(f"add to `cases:` in {into}/suite.yaml: {', '.join(names)}")

    return Answer(document=document, page=page)


def _known(into: Path) -> Suite | None:
    from engine_pipeline.gates.suite_file import SUITE_FILE, load_suite

    there = (into / SUITE_FILE).is_file()
    return load_suite(into.parent, into.name) if there else None


def _head(log: Path, into: Path, names: list[str], options: dict[str, Any]) -> str:
    from engine_pipeline.gates.suite_import import head_text

    fields = {
        "name": into.name,
        "owner": options["owner"],
        "description": f"Chats captured in {log.name}.",
        "model": options["model"],
        "reference": {"spec": "none", "note": "No reference engine: captured, not recorded."},
        "sampling": {
            "temperature": 0.0,
            "top_p": 1.0,
            "seed": 7,
            "max_tokens": options["max_tokens"],
        },
    }
    return head_text(fields, names)


def _warn(shell: Shell, log: Path, found: Import, *, kept: bool) -> None:
    from engine_pipeline.gates.suite_import import some_lines

    if found.secret_lines:
        what = "kept" if kept else "left out; --keep-secrets keeps them"
        shell.progress.note(f"{log}: {some_lines(found.secret_lines)}: looks like a secret, {what}")
