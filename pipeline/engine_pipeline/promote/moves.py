"""What every move of a channel has in common: the state it is decided on, and the commit."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from engine_pipeline.trust.standing import NOT_LOOKED_FOR
from engine_registry.errors import (
    Conflict,
    CouldNotJudge,
    EngineCIError,
    ExitCode,
    Incompatible,
    IntegrityError,
    InvalidInput,
    JudgedAndRefused,
    RefusedByPolicy,
)
from engine_registry.sets import Fate, SetDecision, set_pending, settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from engine_pipeline.compat.node import Node
    from engine_pipeline.promote.findings import Decision
    from engine_pipeline.trust.standing import Signatures
    from engine_registry.digest import Digest
    from engine_registry.drafts import StoredEngine
    from engine_registry.events import Change, ChannelState, Event
    from engine_registry.record import Actor
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry


# A set is prepared and decided within seconds; whoever takes longer has died.
SET_TIMEOUT = timedelta(minutes=5)
# How often an act that insists is decided anew because sets come and go under it.
_TRIES = 8


def _reads_no_nodes(name: str) -> Node:
    raise EngineCIError(
        f"a policy names the node {name}, and nothing here reads descriptions of nodes",
        hint="report this as a bug: the wiring gives desks their nodes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where a channel is moved from: registry, actor and clock.

    Attributes:
        signatures: what is attached to an engine and whose keys count; asked only for promotions to
            a channel whose policy wants something signed.
        node: reads the description of a node that a policy names.
    """

    registry: Registry
    actor: Actor
    clock: Callable[[], datetime]
    signatures: Callable[[Digest], Signatures] = lambda _: NOT_LOOKED_FOR
    node: Callable[[str], Node] = _reads_no_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a move.

    Attributes:
        event: what was appended; None if the channel already was as asked.
        before: the state the move was decided on.
        after: the state now.
        decision: the findings; None for acts that ask no rules.
    """

    event: Event | None
    before: ChannelState
    after: ChannelState
    decision: Decision | None = None


def current(desk: Desk, ref: ChannelRef, *, insists: bool) -> ChannelState:
    """The state to decide on, with the fate of a set that is pending there recorded first.

    Args:
        desk: registry, actor, clock.
        ref: the channel.
        insists: withdraw a set that is not decided yet, as a rollback or a freeze must, and pass
            over old events that are damaged. Otherwise withdraw only a set that its mover seems to
            have left behind.

    Raises:
        Conflict: a set is being moved there (`set-pending`).
    """
    channels = desk.registry.channels
    # Damage to what happened long ago keeps nobody from a rollback, nor from a freeze.
    state = channels.urgent_state(ref) if insists else channels.checked_state(ref)
    pending = state.pending
    if pending is None:
        return state
    name = pending.prepared.set
    is_left_behind = desk.clock() - pending.at > SET_TIMEOUT or pending.actor == desk.actor
    if desk.registry.sets.on(name) is None:
        if not insists and not is_left_behind:
            raise set_pending(state, pending)
        desk.registry.sets.decide(
            SetDecision(
                set=name,
                fate=Fate.WITHDRAWN,
                members=(),
                reason=f"{desk.actor.name} needed {ref}",
                actor=desk.actor,
                at=desk.clock(),
            )
        )
    return settle(desk.registry.channels, desk.registry.sets, ref)


def insist(desk: Desk, ref: ChannelRef, act: Callable[[ChannelState], Moved]) -> Moved:
    """Do what no set may delay: withdraw one that is pending, then act on the channel's state.

    A set that comes or goes between the look and the commit changes nothing that `act` decides on,
    so it is decided again; any other move in between is the caller's to hear of.

    Raises:
        ChannelMoved: somebody else moved the channel first.
    """
    for _ in range(_TRIES):
        state = current(desk, ref, insists=True)
        try:
            return act(state)
        except Conflict:
            if _without_sets(desk.registry.channels.recorded_state(ref)) != _without_sets(state):
                raise
    return act(current(desk, ref, insists=True))


def _without_sets(state: ChannelState) -> ChannelState:
    bare = {"number": 0, "last": None, "last_at": None, "pending": None}
    return state.model_copy(update=bare)


def commit(
    desk: Desk,
    ref: ChannelRef,
    state: ChannelState,
    change: Change,
    whole: StoredEngine | None = None,
) -> tuple[Event, ChannelState]:
    """Append `change` to the log if the channel still is in `state`; raises ChannelMoved.

    What the engine consists of that was just found `whole` is noted for the next rollback.
    """

    def note(after: ChannelState) -> None:
        if whole is not None:
            desk.registry.notes.leave(ref, after, whole)

    return desk.registry.channels.append(
        ref,
        decided_on=state.number,
        change=change,
        actor=desk.actor,
        at=desk.clock(),
        operation=uuid.uuid4().hex,
        seen=state,
        beside=note,
    )


_ERRORS: dict[ExitCode, type[EngineCIError]] = {
    ExitCode.INVALID: InvalidInput,
    ExitCode.REFUSED: JudgedAndRefused,
    ExitCode.COULD_NOT_JUDGE: CouldNotJudge,
    ExitCode.POLICY: RefusedByPolicy,
    ExitCode.INCOMPATIBLE: Incompatible,
    ExitCode.INTEGRITY: IntegrityError,
}


def refuse(act: str, decision: Decision) -> None:
    """Raise the first broken rule's error, naming all of them; return if none is broken."""
    if not decision.broken:
        return
    first = decision.broken[0]
    rest = [f.says for f in decision.broken[1:]]
    message = f"{act} refused: {first.says}"
    if rest:
        message += "; also: " + "; ".join(rest)
    raise _ERRORS[first.exit_code](message, hint=first.hint, reference=f"rule-{first.rule}")


def check_overrides(names: tuple[str, ...], reason: str | None) -> frozenset[str]:
    """The rules to override, if they can be and a reason is given."""
    from engine_pipeline.promote.findings import OVERRIDABLE

    unknown = sorted(set(names) - OVERRIDABLE)
    if unknown:
        raise InvalidInput(
            f"rule {', '.join(unknown)} cannot be overridden; {', '.join(sorted(OVERRIDABLE))} can",
            hint="satisfy the rule instead",
            reference="not-overridable",
        )
    if names and not reason:
        raise InvalidInput(
            "an override without a reason",
            hint="add --reason TEXT; it is recorded in the event log",
            reference="reason-missing",
        )
    return frozenset(names)
