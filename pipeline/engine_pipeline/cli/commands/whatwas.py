"""`enginectl whatwas`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.times import PAST

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.events import Live
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef
    from engine_registry.retired import Retired


@verb("whatwas")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option(
    "--at", "moment", type=PAST, required=True, help="2026-11-24, 2026-11-24T14:00Z or 7d ago; UTC."
)
def command(shell: Shell, channel: str, moment: datetime) -> Answer:
    """What was live on a channel at a time, who had put it there and why."""
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.say_channel import event_row, flags, live_text, state_document
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse(channel)
    state = shell.registry.channels.at_time(ref, moment)
    release, retired, by, together = None, None, None, None
    if state.live is not None:
        release, retired = _release(shell, ref, state.live)
        number = state.history[0].event
        by = next(e for e, _ in shell.registry.channels.events(ref) if e.number == number)
        name = getattr(by.change, "set", None)
        together = shell.registry.sets.on(name) if name else None
    members = [member.channel for member in together.members] if together else []
    document = {
        "at": moment.isoformat(),
        "state": state_document(state),
        "release": release.model_dump(mode="json") if release else None,
        "retired": retired.model_dump(mode="json") if retired else None,
        "event": by.model_dump(mode="json") if by else None,
        "together": members,
    }

    def page(out: Page) -> None:
        out.line(f"{ref} at {when(moment)}: {live_text(state.live)}")
        if by is None or state.live is None:
            return
        _, _, kind, what, who = event_row(by)
        gone = f"{when(retired.at)} by {retired.actor.name}: {retired.reason}" if retired else None
        out.facts(
            [
                ("release", f"{ref.product}:{state.live.number}"),
                ("engine", state.live.engine),
                ("precision", release.content.precision if release else None),
                ("removed", gone),
                ("since", when(state.history[0].since)),
                ("by", f"{who} ({by.actor.proved_by})"),
                ("event", f"{by.number} {kind}: {what}"),
                ("together with", "\n".join(one for one in members if one != str(ref)) or None),
                ("state", flags(state) if flags(state) != "-" else None),
            ]
        )

    return Answer(document=document, page=page)


def _release(
    shell: Shell, ref: ChannelRef, live: Live
) -> tuple[Release, None] | tuple[None, Retired | None]:
    """The release, or what garbage collection left of it."""
    from engine_registry.errors import NotFound
    from engine_registry.refs import ReleaseRef

    named = ReleaseRef(ref.product, live.number)
    try:
        return shell.registry.releases.release(named), None
    except NotFound:
        return None, shell.registry.releases.retired(named)
