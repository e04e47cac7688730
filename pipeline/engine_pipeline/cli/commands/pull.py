"""`enginectl pull`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("pull")
@click.argument("address")
@click.option(
    "--renumber", is_flag=True, help="Take the next number here if a release's own is taken."
)
@click.option("--plain-http", is_flag=True, help="Talk to ADDRESS without TLS.")
def command(shell: Shell, address: str, renumber: bool, plain_http: bool) -> Answer:
    """Bring the engine at ADDRESS into the registry: oci://HOST/REPOSITORY@sha256:… or :TAG.

    What is attached to it, its records and its releases come with it. The login is that of docker
    login.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_arrival import arrival_answer
    from engine_registry.oci.pull import pull
    from engine_registry.oci.reference import OciRef
    from engine_registry.oci.session import Remote

    ref = OciRef.parse(address)
    shell.progress.phase("pull", str(ref))
    arrivals = pull(
        Remote(ref, plain_http=plain_http),
        shell.registry,
        actor=shell.actor,
        renumber=renumber,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    answers = [arrival_answer(arrival, release, shell.registry) for arrival, release in arrivals]

    def page(out: Page) -> None:
        for answer in answers:
            answer.page(out)

    return Answer(
        document={"address": str(ref), "arrivals": [answer.document for answer in answers]},
        page=page,
    )
