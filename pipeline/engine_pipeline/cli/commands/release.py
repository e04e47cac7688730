"""`enginectl release`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("release")
@click.argument("engine")
def command(shell: Shell, engine: str) -> Answer:
    """Cut a numbered release from ENGINE (digest or unique prefix).

    A release is engine, tokenizer, serving image and runtime configuration, moved as one. Cutting
    the same content again gives back the release that is there.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when
    from engine_pipeline.promote.release import cut_release

    digest = shell.registry.resolve_engine(engine)
    release = cut_release(shell.desk, digest)
    document = {"name": release.name, "release": release.model_dump(mode="json")}

    def page(out: Page) -> None:
        content = release.content
        out.verdict("ok", f"release {release.name}")
        out.facts(
            [
                ("engine", content.engine),
                ("precision", f"{content.precision} ({content.kind})"),
                ("serving image", content.serving_image),
                ("evidence", f"{len(content.evidence)} passed reports"),
                ("created", f"{when(release.created_at)} by {release.created_by.name}"),
                ("next", f"enginectl promote {release.name} --to staging"),
            ]
        )

    return Answer(document=document, page=page)
