"""`enginectl hold`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("hold")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option("--lift", is_flag=True, help="End the hold.")
@reason(required=True)
def command(shell: Shell, channel: str, lift: bool, reason: str) -> Answer:
    """Keep promotions off what is live; a rollback sets one by itself.

    A hold lasts until somebody lifts it: `enginectl hold CHANNEL --lift --reason …`.
    """
    from engine_pipeline.cli.say_channel import moved_answer
    from engine_pipeline.promote.say import hold, lift_hold
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse(channel)
    if lift:
        moved = lift_hold(shell.desk, ref, reason=reason)
        return moved_answer(moved, f"{ref} is off hold", f"{ref} was not on hold")
    moved = hold(shell.desk, ref, reason=reason)
    return moved_answer(moved, f"{ref} is on hold", f"{ref} is unchanged")
