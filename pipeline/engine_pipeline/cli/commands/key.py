"""`enginectl key`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("key")
@click.argument("action", type=click.Choice(["new", "show"]))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where new files go [default: here].",
)
def command(shell: Shell, action: str, name: str, directory: Path) -> Answer:  # noqa: ARG001
    """Make a key pair to sign with, or show a public key.

    `key new NAME` writes NAME.key, which only you can read, and NAME.pub; nothing is overwritten.
    `key show FILE` tells the id of a public key. Both print the entry for channels.yaml.
    """
    return _new(name, directory) if action == "new" else _show(Path(name))


def _new(name: str, directory: Path) -> Answer:
    import re

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.trust.key_files import write_new_pair
    from engine_registry.errors import InvalidInput
    from engine_registry.refs import SLUG_PATTERN

    if not re.fullmatch(SLUG_PATTERN, name):
        raise InvalidInput(
            f"no name for a key: {name[:80]!r}",
            hint="use lower-case letters, digits, `.`, `_` and `-`, e.g. `enginectl key new ci`",
            reference="invalid-key-name",
        )
    private, public, key = write_new_pair(name, directory)
    document = {"key_id": key.key_id, "private": str(private), "public": str(public)}

    def page(out: Page) -> None:
        out.verdict("ok", f"key {key.key_id}")
        out.facts([("private", f"{private}: keep it where secrets are kept"), ("public", public)])
        _draw_entry(out, name, str(public))

    return Answer(document=document, page=page)


def _show(path: Path) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.trust.ed25519 import read_public_key
    from engine_pipeline.trust.key_files import read_public_file

    key = read_public_key(read_public_file(path, "key"), str(path))
    document = {"key_id": key.key_id, "public": str(path), "pem": key.pem}

    def page(out: Page) -> None:
        out.line(f"key {key.key_id}")
        _draw_entry(out, path.stem, str(path))

    return Answer(document=document, page=page)


def _draw_entry(out: Page, name: str, path: str) -> None:
    out.line("entry for `trust:` in channels.yaml; paths are relative to that file:")
    out.line(f"  - name: {name}")
    out.line("    may_sign: [build, gate, release]")
    out.line(f"    public_key_file: {path}")
