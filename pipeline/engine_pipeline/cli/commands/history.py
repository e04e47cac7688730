"""`enginectl history`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.digest import Digest
    from engine_registry.events import Event, Pending

# Most names fit; the room is for what happened and why.
_ACTOR_WIDTH = 20


@verb("history")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option("--last", type=click.IntRange(min=1), help="Only so many of the newest events.")
def command(shell: Shell, channel: str, last: int | None) -> Answer:
    """The events of a channel, oldest first, with every link of the log checked."""
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_channel import event_row
    from engine_pipeline.cli.say_set import pending_lines
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse(channel)
    events = shell.registry.channels.events(ref)
    shown = events[-last:] if last else events
    pending = _pending(events)
    decision = shell.registry.sets.on(pending.prepared.set) if pending else None
    document = {
        "channel": str(ref),
        "events": [{**e.model_dump(mode="json"), "digest": str(digest)} for e, digest in shown],
        "pending": {
            "set": pending.prepared.set,
            "event": pending.event,
            "decision": decision.model_dump(mode="json") if decision else None,
        }
        if pending
        else None,
    }

    def page(out: Page) -> None:
        if not shown:
            out.line(f"{ref} has no events")
            return
        out.table(
            ("event", "at", "what", "details", "by"),
            [event_row(e) for e, _ in shown],
            whole=("event", "at", "what"),
            widest={"by": _ACTOR_WIDTH},
        )
        for line in pending_lines(str(ref), pending, decision) if pending else ():
            out.line(line)

    return Answer(document=document, page=page)


def _pending(events: list[tuple[Event, Digest]]) -> Pending | None:
    """The set for which the newest event reserves the channel."""
    from engine_registry.events import Pending, Prepared

    if not events or not isinstance(events[-1][0].change, Prepared):
        return None
    event = events[-1][0]
    return Pending(prepared=event.change, event=event.number, actor=event.actor, at=event.at)
