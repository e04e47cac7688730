"""`enginectl release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import signing, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.record import Release


@verb("release")
@click.argument("engine")
@click.option(
    "--product", metavar="MODEL/TARGET", help="Which, where equal bytes were built as several."
)
@signing
def command(shell: Shell, engine: str, product: str | None, sign_with: str | None) -> Answer:
    """Cut a numbered release from ENGINE (digest or unique prefix).

    A release is engine, tokenizer, serving image and runtime configuration, moved as one. Cutting
    the same content again gives back the release that is there.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.lookup import product_of
    from engine_pipeline.cli.render import counted, when
    from engine_pipeline.promote.release import cut_release
    from engine_pipeline.trust.signatures import sign_release

    signing_key = shell.signer(sign_with)
    digest = shell.registry.resolve_engine(engine)
    release = cut_release(shell.desk, digest, product_of(shell.registry, digest, product))
    signed = sign_release(shell.registry, release, signing_key) if signing_key else None
    document = {
        "name": release.name,
        "release": release.model_dump(mode="json"),
        "envelope": str(signed.envelope) if signed else None,
    }

    def page(out: Page) -> None:
        content = release.content
        out.verdict("ok", f"release {release.name}")
        out.facts(
            [
                ("engine", content.engine),
                ("precision", f"{content.precision} ({content.kind})"),
                ("serving image", content.serving_image),
                ("evidence", counted(len(content.evidence), "passed report")),
                ("signature", signed.envelope if signed else None),
                ("created", f"{when(release.created_at)} by {release.created_by.name}"),
                ("next", _next(shell, release)),
            ]
        )

    return Answer(document=document, page=page)


def _next(shell: Shell, release: Release) -> str:
    """The command that brings the release on: to its first channel, or to what that asks for."""
    from engine_registry.errors import EngineCIError
    from engine_registry.refs import ProductRef

    content = release.content
    try:
        channels = shell.policies.for_product(ProductRef(release.model, release.target)).channels
    except EngineCIError:
        return f"enginectl promote {release.name} --to staging"
    # No policy is without a channel that has no upstream: chains of them end.
    name, rules = next(one for one in channels.items() if one[1].upstream is None)
    if rules.gates and not content.evidence:
        return f"enginectl gate {content.engine.short}"
    return f"enginectl promote {release.name} --to {name}"
