"""`enginectl validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell

_TARGETS = "targets.yaml"
_NOTIFICATIONS = "notifications.yaml"


@verb("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--schema",
    type=click.Choice(["spec", "report"]),
    is_flag=False,
    flag_value="spec",
    help="Print the JSON Schema of a spec, for editors, or of a gate's report.",
)
def command(shell: Shell, files: tuple[Path, ...], schema: str | None) -> Answer:
    """Check specs, suites and channels.yaml; all of the project's when no FILES are given.

    A directory is a suite. What a file is, its keys say: a spec, policies, targets, notifications,
    a bake-off, a workload, or one of a suite's own files. Every problem of every file is printed
    with its line and key path.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.examining import examine
    from engine_registry.errors import ExitCode

    if schema is not None:
        return _schema(schema)
    rows = [examine(shell, path) for path in files or _project(shell)]
    bad = [row for row in rows if row["problems"]]

    def page(out: Page) -> None:
        for row in rows:
            out.verdict("failed" if row["problems"] else "ok", f"{row['file']} ({row['what']})")
            for problem in row["problems"]:
                out.line(f"    {problem}")
            for warning in row["warnings"]:
                out.line(f"    warning: {warning}")

    code = ExitCode.INVALID if bad else ExitCode.DONE
    return Answer(document={"files": rows, "ok": not bad}, page=page, exit_code=code)


def _schema(of: str) -> Answer:
    import json

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.gates.report_schema import report_schema
    from engine_pipeline.spec.load import spec_schema

    document = spec_schema() if of == "spec" else report_schema()

    def page(out: Page) -> None:
        out.line(json.dumps(document, indent=2))

    return Answer(document={"schema": document}, page=page)


def _project(shell: Shell) -> list[Path]:
    root = shell.channels_file.parent
    suites = sorted(path.parent for path in shell.suites_dir.glob("*/suite.yaml"))
    return [
        *sorted(root.glob("build_specs/*/*.yaml")),
        *suites,
        shell.channels_file,
        *sorted(root.glob(_TARGETS)),
        *sorted(root.glob(_NOTIFICATIONS)),
        *sorted(root.glob("golden_prompts/bakeoffs/*.yaml")),
        *sorted(root.glob("workloads/*.yaml")),
    ]
