"""`enginectl approve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("approve")
@click.argument("release")
@click.option("--on", "channel", metavar="CHANNEL", required=True, help="Channel, e.g. prod.")
@reason(required=False)
def command(shell: Shell, release: str, channel: str, reason: str | None) -> Answer:
    """Say yes to RELEASE on a channel that asks for approvals.

    Recorded in the channel's log under your name, which something has to prove: see
    approvals_proved_by in docs/trust.md. Approvals by who built or promotes the release are
    recorded and do not count.
    """
    from engine_pipeline.cli.say_channel import moved_answer
    from engine_pipeline.promote.say import approve
    from engine_registry.refs import ChannelRef

    found = shell.registry.resolve_release(release)
    ref = ChannelRef.parse(f"{found.model}/{found.target}/{channel}")
    policy = shell.policies.for_channel(ref)
    moved = approve(shell.desk, found, ref, policy=policy, reason=reason)
    who, live = shell.actor.name, moved.before.live
    if live is not None and live.release == found.digest:
        unchanged = f"{found.name} is live on {channel} already: no approval is wanted"
    elif not policy.approvals:
        unchanged = f"{ref} asks for no approvals: nothing was recorded"
    else:
        unchanged = f"{who} approved {found.name} before"
    return moved_answer(moved, f"{who} approved {found.name} on {channel}", unchanged)
