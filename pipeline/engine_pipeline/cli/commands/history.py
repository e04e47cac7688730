"""`enginectl history`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("history")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option("--last", type=click.IntRange(min=1), help="Only so many of the newest events.")
def command(shell: Shell, channel: str, last: int | None) -> Answer:
    """The events of a channel, oldest first, with every link of the log checked."""
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_channel import event_row
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse(channel)
    events = shell.registry.channels.events(ref)
    shown = events[-last:] if last else events
    document = {
        "channel": str(ref),
        "events": [{**e.model_dump(mode="json"), "digest": str(digest)} for e, digest in shown],
    }

    def page(out: Page) -> None:
        if not shown:
            out.line(f"{ref} has no events")
            return
        out.table(("event", "at", "what", "details", "by"), [event_row(e) for e, _ in shown])

    return Answer(document=document, page=page)
