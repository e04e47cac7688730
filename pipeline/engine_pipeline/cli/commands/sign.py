"""`enginectl sign`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell

_ROLES = ("build", "gate", "release")


@verb("sign")
@click.argument("name")
@click.option(
    "--key",
    "key_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="ENGINECTL_SIGNING_KEY",
    required=True,
    help="Private key to sign with [env: ENGINECTL_SIGNING_KEY].",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    type=click.Choice(_ROLES),
    help="Sign only this; default: everything there is.",
)
def command(shell: Shell, name: str, key_file: Path, only: tuple[str, ...]) -> Answer:
    """Sign what exists: provenance and reports of an engine, and a release.

    NAME is a digest, a unique prefix, MODEL/TARGET:N or MODEL/TARGET/CHANNEL. You vouch for what
    you sign, so look at it first. Signing again with the same key changes nothing.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.trust.ed25519 import read_signing_key
    from engine_pipeline.trust.signatures import sign_builds, sign_release, sign_reports
    from engine_registry.errors import InvalidInput

    key = read_signing_key(key_file)
    registry = shell.registry
    found = registry.resolve(name)
    roles = only or _ROLES
    if found.release is None and "release" in only:
        raise InvalidInput(
            f"{name} names an engine, and a release was to be signed",
            hint=f"cut one with `enginectl release {found.engine.short}`, then sign MODEL/TARGET:N",
            reference="no-release-to-sign",
        )
    signed = []
    if "build" in roles:
        signed += sign_builds(registry, found.engine, key)
    if "gate" in roles:
        signed += sign_reports(registry, found.engine, key)
    if "release" in roles and found.release is not None:
        signed.append(sign_release(registry, found.release, key))
    document = {
        "engine": str(found.engine),
        "key_id": key.public.key_id,
        "signed": [
            {"role": str(s.role), "what": s.what, "envelope": str(s.envelope)} for s in signed
        ],
    }

    def page(out: Page) -> None:
        out.verdict("ok", f"{len(signed)} statements signed with key {key.public.key_id[:12]}")
        out.table(
            ("role", "what", "envelope"),
            [(str(item.role), item.what, item.envelope.short) for item in signed],
        )

    return Answer(document=document, page=page)
