"""Whose yes counts on a channel: one rule for who approves and for who promotes on it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine_pipeline.promote.findings import Finding
from engine_registry.errors import RefusedByPolicy

if TYPE_CHECKING:
    from engine_pipeline.promote.findings import Candidate
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.events import ChannelState
    from engine_registry.record import Actor
    from engine_registry.refs import ChannelRef


def approvals_finding(
    candidate: Candidate, state: ChannelState, policy: ChannelPolicy, actor: Actor
) -> Finding:
    """Did enough people say yes whose names are proved, and who neither built nor promote it?"""
    barred = {candidate.built_by.name, actor.name}
    approvers = [a.actor for a in state.approvals if a.release == candidate.digest]
    proved = {a.name for a in approvers if is_proved(a, policy)}
    counted = sorted(proved - barred)
    typed = sorted({a.name for a in approvers} - proved)
    says = f"{len(counted)} of {policy.approvals} approvals"
    if counted:
        says += f" ({', '.join(counted)})"
    if proved & barred:
        says += f"; not counted, built or promotes it: {', '.join(sorted(proved & barred))}"
    allowed = ", ".join(policy.approvals_proved_by)
    if typed:
        says += f"; not counted, not proved by {allowed}: {', '.join(typed)}"
    hint = f"another person: `enginectl approve {candidate.release.name} --on {state.channel}`"
    # Whoever promotes under a made-up name could have approved under their own.
    if policy.approvals and not is_proved(actor, policy):
        says += f"; who promotes is {actor.name} ({actor.proved_by}), want proof by {allowed}"
        hint = "promote without ENGINECTL_ACTOR, or change approvals_proved_by in channels.yaml"
        return Finding(rule="approvals", holds=False, says=says, hint=hint)
    return Finding(rule="approvals", holds=len(counted) >= policy.approvals, says=says, hint=hint)


def refuse_unproved(actor: Actor, channel: ChannelRef, policy: ChannelPolicy) -> None:
    """Raise RefusedByPolicy for a yes that no promotion would count, under this policy."""
    if is_proved(actor, policy):
        return
    allowed = ", ".join(policy.approvals_proved_by)
    typed = "without ENGINECTL_ACTOR" if actor.proved_by == "claimed" else "where that proves you"
    raise RefusedByPolicy(
        f"approval by {actor.name} ({actor.proved_by}) would not count on {channel}: "
        f"want proof by {allowed}",
        hint=f"approve {typed}, or change approvals_proved_by in channels.yaml",
        reference="approval-unproved",
    )


def is_proved(actor: Actor, policy: ChannelPolicy) -> bool:
    """Whether the kind of proof, the first word of `proved_by`, is one that counts."""
    return re.split(r"[ ,]", actor.proved_by, maxsplit=1)[0] in policy.approvals_proved_by
