"""`enginectl rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.refs import ChannelRef


@verb("rollback")
@click.argument("channel", metavar="MODEL/TARGET/CHANNEL")
@click.option(
    "--to",
    "target",
    metavar="RELEASE",
    help="Release number, name or engine digest; default: the last good one.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="RULE",
    help="Accept a broken rule: bad or fit.",
)
@reason(required=True)
def command(
    shell: Shell, channel: str, target: str | None, overrides: tuple[str, ...], reason: str
) -> Answer:
    """Take a channel back to an earlier release.

    Checks that the release was live here before, is whole in the store, fits the target and loads
    on every node that channels.yaml names; then writes one event. What it replaces is marked bad
    and the channel is put on hold, so that no pipeline promotes over it. A freeze does not stop a
    rollback.
    """
    from engine_pipeline.cli.say_channel import live_text, moved_answer
    from engine_pipeline.promote.rollback import roll_back
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse(channel)
    number = None if target is None else _number(shell, ref, target)
    moved = roll_back(
        shell.desk, ref, reason=reason, to=number, overrides=overrides, policy=_policy(shell, ref)
    )
    return moved_answer(
        moved, f"{ref} is back at {live_text(moved.after.live)}", f"{ref} is unchanged"
    )


def _policy(shell: Shell, ref: ChannelRef) -> ChannelPolicy | None:
    """The channel's rules; a channels.yaml that cannot be read is said and passed over."""
    from engine_registry.errors import EngineCIError

    try:
        return shell.policy_of(ref)
    except EngineCIError as error:
        shell.progress.note(f"nodes are not asked: {error.message}")
        return None


def _number(shell: Shell, ref: ChannelRef, target: str) -> int:
    """The release number meant by a number, a release name or an engine digest live here before."""
    if target.isdigit() and len(target) < 8:
        return int(target)
    from engine_registry.errors import InvalidInput
    from engine_registry.refs import ProductRef, ReleaseRef

    if ":" in target.removeprefix("sha256:"):
        found = ReleaseRef.parse(target)  # not read yet: a damaged one is refused with what else
    else:
        state = shell.registry.channels.state(ref)
        text = target.removeprefix("sha256:")
        matches = {e.live.number for e in state.history if e.live.engine.hex.startswith(text)}
        if len(matches) == 1 and len(text) >= 8:
            return matches.pop()
        release = shell.registry.resolve_release(target)
        found = ReleaseRef(ProductRef(release.model, release.target), release.number)
    if found.product != ref.product:
        raise InvalidInput(
            f"rollback of {ref} to {found} refused: that is a release of {found.product}",
            hint=f"pick one from `enginectl history {ref}`",
            reference="other-product",
        )
    return found.number
