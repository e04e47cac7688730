"""`enginectl promote`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.sets import Wish
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


@verb("promote")
@click.argument("releases", nargs=-1, required=True, metavar="RELEASE...")
@click.option(
    "--to", "channel", metavar="CHANNEL", required=True, help="Channel, e.g. staging or prod."
)
@click.option("--check", is_flag=True, help="Say what each release lacks, and move nothing.")
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="RULE",
    help="Accept a broken rule: bad or fit; needs --reason.",
)
@reason(required=False)
def command(
    shell: Shell,
    releases: tuple[str, ...],
    channel: str,
    check: bool,
    overrides: tuple[str, ...],
    reason: str | None,
) -> Answer:
    """Make RELEASE live on a channel, if the channel's policy says yes.

    RELEASE is MODEL/TARGET:N, or the digest of an engine that was released once. All broken rules
    are named at once; the exit code is that of the first. A release that is live already is left
    alone.

    Several releases, each of another MODEL/TARGET, move all or none: they go live at one moment, or
    the answer says what each of them lacks and nothing has moved.
    """
    from engine_registry.refs import ChannelRef

    found = [shell.registry.resolve_release(text) for text in releases]
    wishes = [
        _wish(shell, release, ChannelRef.parse(f"{release.model}/{release.target}/{channel}"))
        for release in found
    ]
    if len(wishes) == 1 and not check:
        return _one(shell, wishes[0], reason, overrides)
    from engine_pipeline.cli.say_set import set_answer
    from engine_pipeline.promote.sets import preflight, promote_set

    act = preflight if check else promote_set
    outcome = act(shell.desk, wishes, reason=reason, overrides=overrides)
    return set_answer(outcome, channel, was_asked_only=check)


def _wish(shell: Shell, release: Release, ref: ChannelRef) -> Wish:
    from engine_pipeline.promote.sets import Wish

    policy = shell.policies.for_channel(ref)
    return Wish(release=release, channel=ref, policy=policy, wanted=shell.wanted(policy))


def _one(shell: Shell, wish: Wish, reason: str | None, overrides: tuple[str, ...]) -> Answer:
    from engine_pipeline.cli.say_channel import live_text, moved_answer
    from engine_pipeline.promote.promote import promote

    ref = wish.channel
    moved = promote(
        shell.desk,
        wish.release,
        ref,
        policy=wish.policy,
        wanted=wish.wanted,
        reason=reason,
        overrides=overrides,
    )
    return moved_answer(
        moved,
        f"{ref.channel} of {ref.product} is now {live_text(moved.after.live)}",
        f"{wish.release.name} is live on {ref} already",
    )
