"""`enginectl sign`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.trust.signers import Signer

_ROLES = ("build", "gate", "release")


@verb("sign")
@click.argument("name")
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    envvar="ENGINECTL_SIGNING_KEY",
    help="Private key to sign with, or keyless:FILE [env: ENGINECTL_SIGNING_KEY].",
)
@click.option(
    "--keyless",
    is_flag=True,
    help="Sign as whoever CI says this is, with a certificate by sigstore instead of a key.",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    type=click.Choice(_ROLES),
    help="Sign only this; default: everything there is.",
)
def command(
    shell: Shell, name: str, key_file: str | None, keyless: bool, only: tuple[str, ...]
) -> Answer:
    """Sign what exists: provenance and reports of an engine, and a release.

    NAME is a digest, a unique prefix, MODEL/TARGET:N or MODEL/TARGET/CHANNEL. You vouch for what
    you sign, so look at it first. Signing again with the same key or identity changes nothing.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.trust.signatures import sign_builds, sign_release, sign_reports
    from engine_pipeline.trust.signers import facts_of
    from engine_registry.errors import InvalidInput

    key = _signer(shell, key_file, keyless=keyless)
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
    facts = facts_of(key.public)
    document = {
        "engine": str(found.engine),
        **facts,
        "signed": [
            {
                "role": str(s.role),
                "what": s.what,
                "envelope": str(s.envelope),
                "is_new": s.is_new,
            }
            for s in signed
        ],
    }

    def page(out: Page) -> None:
        from engine_pipeline.cli.render import counted

        who = f"key {facts['key_id'][:12]}" if "key_id" in facts else facts["identity"]
        new = sum(item.is_new for item in signed)
        if new:
            out.verdict("ok", f"{counted(new, 'statement')} signed with {who}")
        else:
            out.verdict("unchanged", f"everything was signed with {who} before")
        out.table(
            ("role", "what", "envelope", ""),
            [
                (str(item.role), item.what, item.envelope.short, "" if item.is_new else "before")
                for item in signed
            ],
        )

    return Answer(document=document, page=page)


def _signer(shell: Shell, key_file: str | None, *, keyless: bool) -> Signer:
    from engine_pipeline.trust.signers import KEYLESS
    from engine_registry.errors import InvalidInput

    named = click.get_current_context().get_parameter_source("key_file")
    if keyless and key_file is not None and named is click.core.ParameterSource.COMMANDLINE:
        raise InvalidInput(
            f"--key {key_file} and --keyless are two signers",
            hint="give one of them; `--key keyless:FILE` names a sigstore instance",
            reference="two-signers",
        )
    signer = shell.signer(KEYLESS if keyless else key_file)
    if signer is None:
        raise InvalidInput(
            "nobody to sign as: neither --key nor --keyless",
            hint="name a key with --key FILE or ENGINECTL_SIGNING_KEY, or use --keyless in CI",
            reference="no-signer",
        )
    return signer
