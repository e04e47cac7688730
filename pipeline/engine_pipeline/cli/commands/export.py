"""`enginectl export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
@click.option(
    "--archive",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the release or engine with all that belongs to it to a new tar FILE, for import.",
)
def command(
    shell: Shell, engine: str, directory: Path | None, bom: Path | None, archive: Path | None
) -> Answer:
    """Write ENGINE and what is attached to it as an OCI image layout in a new DIRECTORY.

    Any OCI tool reads it and sees the same digest, such as skopeo inspect --raw oci:DIRECTORY:NAME.
    With --archive, ENGINE may be a release, and enginectl import takes it in at another site.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_registry.export import export_oci_layout

    if directory is None and bom is None and archive is None:
        raise click.UsageError(
            "nothing to write: name a DIRECTORY, or a file with --archive or --bom"
        )
    digest = shell.registry.resolve_engine(engine)
    if bom is not None:
        _write_bom(shell, digest, bom)
    if directory is not None:
        export_oci_layout(shell.registry, digest, directory)
    document: dict[str, Any] = {
        "engine": str(digest),
        "directory": str(directory) if directory else None,
        "bom": str(bom) if bom else None,
        "archive": None,
    }
    written = _write_archive(shell, engine, archive) if archive is not None else None
    if written is not None:
        document["archive"] = {"file": str(archive), "digest": str(written[1])}

    def page(out: Page) -> None:
        if bom is not None:
            out.verdict("ok", f"bill of materials of engine {digest} is in {bom}")
        if directory is not None:
            out.verdict("ok", f"engine {digest} is in {directory} as an OCI image layout")
            out.facts([("next", f"skopeo inspect --raw oci:{directory}:{digest.short}")])
        if written is not None:
            what, sha256 = written
            out.verdict("ok", f"{what} is in {archive}")
            out.facts([("sha256sum", sha256.hex), ("next", f"enginectl import {archive}")])

    return Answer(document=document, page=page)


def _write_archive(shell: Shell, name: str, file: Path) -> tuple[str, Digest]:
    """What was written, and the digest of the file."""
    from engine_registry.archive import write_archive
    from engine_registry.transfer_cargo import refs_of

    found = shell.registry.resolve(name)
    what = refs_of(found.release) if found.release else found.engine
    shell.progress.phase("archive", f"{what} to {file}")
    _, digest = write_archive(
        shell.registry,
        what,
        file,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    return (f"release {what}" if found.release else f"engine {what}"), digest


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
