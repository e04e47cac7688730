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


@verb("export")
@click.argument("engine")
@click.argument("directory", type=click.Path(path_type=Path))
def command(shell: Shell, engine: str, directory: Path) -> Answer:
    """Write ENGINE and what is attached to it as an OCI image layout in a new DIRECTORY.

    Any OCI tool reads it and sees the same digest, such as skopeo inspect --raw oci:DIRECTORY:NAME
    """
    from engine_pipeline.cli.answer import Answer
    from engine_registry.export import export_oci_layout

    digest = shell.registry.resolve_engine(engine)
    export_oci_layout(shell.registry, digest, directory)
    document = {"engine": str(digest), "directory": str(directory)}

    def page(out: Page) -> None:
        out.verdict("ok", f"engine {digest} is in {directory} as an OCI image layout")
        out.facts([("next", f"skopeo inspect --raw oci:{directory}:{digest.short}")])

    return Answer(document=document, page=page)
