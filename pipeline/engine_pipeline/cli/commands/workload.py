"""`enginectl workload`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.number_option import WholeNumber
from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.workload.model import Workload

_FOLDER = "workloads"


@verb("workload")
@click.argument("action", type=click.Choice(["capture", "show"]))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The captured workload's; default: the log's.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Where it goes; default: {_FOLDER}/NAME.yaml beside channels.yaml.",
)
@click.option(
    "--requests",
    type=WholeNumber(1, 100_000),
    default=300,
    show_default=True,
    help="How many requests the captured workload makes; 299 bound a p99.",
)
def command(
    shell: Shell, action: str, file: Path, name: str | None, out: Path | None, requests: int
) -> Answer:
    """Workloads that lanes of gates are measured under.

    `capture` reads FILE, a log of requests with one JSON object a line, and writes a workload like
    it: lengths, rate and bursts, what prompts share. No text of the log is kept. `show` says what
    the workload in FILE is, and the digest that a lane pins it with.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.workload.file import load_workload

    if action == "show":
        for option, value in (("--name", name), ("--out", out)):
            if value is not None:
                raise click.UsageError(f"{option} goes with capture, not with show")
        workload, path = load_workload(file), file
    else:
        workload, path = _captured(shell, file, name, out, requests)
    document: dict[str, Any] = {
        "file": str(path),
        "digest": str(workload.digest),
        "workload": workload.model_dump(mode="json"),
    }

    def page(page: Page) -> None:
        if action == "capture":
            page.verdict("ok", f"{path}: written")
        _draw(page, workload)

    return Answer(document=document, page=page)


def _captured(
    shell: Shell, log: Path, name: str | None, out: Path | None, requests: int
) -> tuple[Workload, Path]:
    import re

    from engine_pipeline.cli.slug_option import slug
    from engine_pipeline.workload.capture import capture
    from engine_pipeline.workload.file import read_log, refuse_existing, write_workload

    stem = log.name.removesuffix(".gz").rpartition(".")[0] or log.name
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:64].strip("-") or "captured"
    called = plain if name is None else slug(name, "--name")
    path = out or shell.channels_file.parent / _FOLDER / f"{called}.yaml"
    refuse_existing(path)
    workload = capture(read_log(log), name=called, requests=requests, source=str(log))
    write_workload(path, workload)
    return workload, path


def _draw(out: Page, workload: Workload) -> None:
    from engine_pipeline.cli.render import counted
    from engine_pipeline.workload.model import describe

    out.facts([("workload", workload.name), *describe(workload), ("digest", workload.digest)])
    captured = workload.captured
    if captured is None:
        return
    out.line(f"captured from {counted(captured.lines, 'line')}")
    for reason, count in captured.skipped.items():
        out.line(f"    skipped {count}: {reason}")
    if captured.dispersion is not None:
        out.line(
            f"    counts in windows of {captured.window_s:g} s vary {captured.dispersion:g} times "
            "as much as Poisson's"
        )
    for note in captured.notes:
        out.line(f"    note: {note}")
