"""`enginectl freeze`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb
from engine_pipeline.cli.times import EXPIRY

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("freeze")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option("--until", type=EXPIRY, help="When it ends by itself, e.g. 2026-12-24T18:00Z or 12h.")
@click.option("--lift", is_flag=True, help="End the freeze.")
@reason(required=True)
def command(shell: Shell, channel: str, until: datetime | None, lift: bool, reason: str) -> Answer:
    """Stop promotions to a channel; rollback stays allowed."""
    from engine_pipeline.cli.known_channel import known_channel
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.say_channel import moved_answer
    from engine_pipeline.promote.say import freeze, thaw

    ref = known_channel(shell, channel)
    if lift:
        moved = thaw(shell.desk, ref, reason=reason)
        return moved_answer(moved, f"{ref} is thawed", f"{ref} was not frozen")
    moved = freeze(shell.desk, ref, reason=reason, until=until)
    end = f" until {when(until)}" if until else ""
    return moved_answer(moved, f"{ref} is frozen{end}", f"{ref} is unchanged")
