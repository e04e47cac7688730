"""`enginectl promote`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("promote")
@click.argument("release")
@click.option(
    "--to", "channel", metavar="CHANNEL", required=True, help="Channel, e.g. staging or prod."
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="RULE",
    help="Accept a broken rule: bad or fit; needs --reason.",
)
@reason(required=False)
def command(
    shell: Shell, release: str, channel: str, overrides: tuple[str, ...], reason: str | None
) -> Answer:
    """Make RELEASE live on a channel, if the channel's policy says yes.

    RELEASE is MODEL/TARGET:N, or an engine digest (its newest release). All broken rules are
    named at once; the exit code is that of the first. A release that is live already is left alone.
    """
    from engine_pipeline.cli.lookup import release_named
    from engine_pipeline.cli.say_channel import live_text, moved_answer
    from engine_pipeline.promote.promote import promote
    from engine_registry.refs import ChannelRef

    found = release_named(shell.registry, release)
    ref = ChannelRef.parse(f"{found.model}/{found.target}/{channel}")
    policy = shell.policies.for_channel(ref)
    moved = promote(
        shell.desk,
        found,
        ref,
        policy=policy,
        wanted=shell.wanted(policy),
        reason=reason,
        overrides=overrides,
    )
    return moved_answer(
        moved,
        f"{ref.channel} of {ref.product} is now {live_text(moved.after.live)}",
        f"{found.name} is live on {ref} already",
    )
