"""`enginectl import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("import")
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--renumber", is_flag=True, help="Take the next number here if the release's own is taken."
)
def command(shell: Shell, archive: Path, renumber: bool) -> Answer:
    """Bring the release or engine in ARCHIVE into the registry.

    ARCHIVE is a file that enginectl export --archive wrote. Every byte is checked, and nothing of a
    damaged archive becomes visible.
    """
    from engine_pipeline.cli.say_arrival import arrival_answer
    from engine_registry.archive import import_archive, read_archive

    cargo, _ = read_archive(archive)
    shell.progress.phase("import", str(archive))
    arrival = import_archive(
        archive,
        shell.registry,
        actor=shell.actor,
        renumber=renumber,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    return arrival_answer(arrival, cargo.release[1] if cargo.release else None, shell.registry)
