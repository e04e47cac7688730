"""`enginectl transfer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("transfer")
@click.argument("what")
@click.option("--to", "to", metavar="URL", required=True, help="Registry that gets the copy.")
@click.option(
    "--renumber", is_flag=True, help="Take the next number there if the release's own is taken."
)
def command(shell: Shell, what: str, to: str, renumber: bool) -> Answer:
    """Copy WHAT, a release or an engine, with all that belongs to it into another registry.

    What is there already is not sent again, so run it again if it was interrupted. Channels are not
    copied.
    """
    from engine_pipeline.cli.say_arrival import arrival_answer
    from engine_pipeline.cli.wiring import utc_now
    from engine_registry.registry import open_registry
    from engine_registry.transfer import transfer
    from engine_registry.transfer_cargo import refs_of

    found = shell.registry.resolve(what)
    other = open_registry(to, clock=utc_now)
    shell.progress.phase("transfer", f"{what} to {to}")
    arrival = transfer(
        shell.registry,
        refs_of(found.release) if found.release else found.engine,
        other,
        actor=shell.actor,
        renumber=renumber,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    return arrival_answer(arrival, found.release, other)
