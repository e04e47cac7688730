"""`enginectl whatwas`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.times import MOMENT

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("whatwas")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option(
    "--at", "moment", type=MOMENT, required=True, help="2026-11-24, 2026-11-24T14:00Z, -7d; UTC."
)
def command(shell: Shell, channel: str, moment: datetime) -> Answer:
    """What was live on a channel at a time, who had put it there and why."""
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.say_channel import event_row, flags, live_text, state_document
    from engine_registry.refs import ChannelRef, ReleaseRef

    ref = ChannelRef.parse(channel)
    state = shell.registry.channels.at_time(ref, moment)
    release = None
    by = None
    if state.live is not None:
        release = shell.registry.releases.release(ReleaseRef(ref.product, state.live.number))
        number = state.history[0].event
        by = next(e for e, _ in shell.registry.channels.events(ref) if e.number == number)
    document = {
        "at": moment.isoformat(),
        "state": state_document(state),
        "release": release.model_dump(mode="json") if release else None,
        "event": by.model_dump(mode="json") if by else None,
    }

    def page(out: Page) -> None:
        out.line(f"{ref} at {when(moment)}: {live_text(state.live)}")
        if release is None or by is None:
            return
        _, at, kind, what, who = event_row(by)
        out.facts(
            [
                ("release", release.name),
                ("engine", release.content.engine),
                ("precision", release.content.precision),
                ("since", at),
                ("by", f"{who} ({by.actor.proved_by})"),
                ("event", f"{by.number} {kind}: {what}"),
                ("state", flags(state) if flags(state) != "-" else None),
            ]
        )

    return Answer(document=document, page=page)
