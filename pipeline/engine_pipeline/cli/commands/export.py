"""`enginectl export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.digest import Digest


@verb("export")
@click.argument("engine")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option(
    "--bom",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the engine's bill of materials, CycloneDX 1.6 JSON, to a new FILE.",
)
def command(shell: Shell, engine: str, directory: Path | None, bom: Path | None) -> Answer:
    """Write ENGINE and what is attached to it as an OCI image layout in a new DIRECTORY.

    Any OCI tool reads it and sees the same digest, such as skopeo inspect --raw oci:DIRECTORY:NAME
    """
    from engine_pipeline.cli.answer import Answer
    from engine_registry.export import export_oci_layout

    if directory is None and bom is None:
        raise click.UsageError("nothing to write: name a DIRECTORY, or a file with --bom")
    digest = shell.registry.resolve_engine(engine)
    if bom is not None:
        _write_bom(shell, digest, bom)
    if directory is not None:
        export_oci_layout(shell.registry, digest, directory)
    document = {
        "engine": str(digest),
        "directory": str(directory) if directory else None,
        "bom": str(bom) if bom else None,
    }

    def page(out: Page) -> None:
        if bom is not None:
            out.verdict("ok", f"bill of materials of engine {digest} is in {bom}")
        if directory is not None:
            out.verdict("ok", f"engine {digest} is in {directory} as an OCI image layout")
            out.facts([("next", f"skopeo inspect --raw oci:{directory}:{digest.short}")])

    return Answer(document=document, page=page)


def _write_bom(shell: Shell, engine: Digest, file: Path) -> None:
    from importlib.metadata import version

    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.promote.release import lock_of
    from engine_pipeline.trust.bom import ml_bom
    from engine_registry.errors import InvalidInput

    stored = shell.registry.engines.engine(engine)
    record = latest_record(stored.records)
    lock = lock_of(shell.registry, record)
    data = ml_bom(engine, stored.manifest, record, lock, tool_version=version("engine-ci"))
    try:
        with file.open("xb") as out:
            out.write(data)
    except OSError as error:
        raise InvalidInput(
            f"{file}: cannot be written: {error.strerror}",
            hint="name a file that does not exist, in a directory that does",
            reference="bom-not-written",
        ) from error
