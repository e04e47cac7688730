"""Take a channel back to an earlier release: one event, nothing rebuilt.

Reads the pointer, the newest links of the log, one release and the stamps of its blobs; writes one
event. The cost does not depend on how many engines are recorded. Where the store is far, all of it
is asked for in two goes, since earlier moves noted what there is to look at.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from engine_pipeline.promote.moves import Moved, check_overrides, commit, insist, refuse
from engine_pipeline.promote.nodes import fit_of_nodes
from engine_pipeline.promote.rollback_next import command, saying_next, with_commands
from engine_pipeline.promote.rules import decide_rollback, rollback_candidates
from engine_registry.ahead import ahead
from engine_registry.errors import EngineCIError, NotFound
from engine_registry.events import Live, RolledBack
from engine_registry.foresight import foreseen
from engine_registry.refs import ReleaseRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.digest import Digest
    from engine_registry.drafts import StoredEngine
    from engine_registry.events import ChannelState
    from engine_registry.record import Record
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry


def roll_back(
    desk: Desk,
    channel: ChannelRef,
    *,
    reason: str,
    to: int | None = None,
    overrides: tuple[str, ...] = (),
    policy: ChannelPolicy | None = None,
) -> Moved:
    """Make an earlier release of `channel` live again, mark what it replaces bad, set a hold.

    Args:
        desk: registry, actor, clock.
        channel: what to take back.
        reason: recorded in the log.
        to: release number; by default the best of `rollback_candidates`.
        overrides: rules whose refusal is accepted (`bad`, `fit`).
        policy: names the nodes it must load on; None if there is none to be read.

    Raises:
        NotFound: nothing to go back to, or bytes are missing.
        IntegrityError: stored bytes of the target do not match their digest.
        RefusedByPolicy: never live here, or marked bad.
        Incompatible: the target was built for another SKU, or does not load on a node.
        ChannelMoved: somebody moved the channel first.
    """
    accepted = check_overrides(overrides, reason)
    with foreseen(desk.registry, channel, partial(_likely, to=to)) as registry:
        here = replace(desk, registry=registry)
        return insist(
            here,
            channel,
            lambda state: _roll_back(here, channel, state, reason, to, accepted, policy),
        )


def _roll_back(
    desk: Desk,
    channel: ChannelRef,
    state: ChannelState,
    reason: str,
    to: int | None,
    accepted: frozenset[str],
    policy: ChannelPolicy | None,
) -> Moved:
    number = to if to is not None else _default_target(state, reason)
    act = f"rollback of {channel} to release {number}"
    registry = desk.registry
    named = next((e.live.engine for e in state.history if e.live.number == number), None)
    with ahead(registry.stores) as ask, saying_next(registry, act, state, number, reason, named):
        # The channel names the engine, so its bytes are looked at while the release is read.
        whole = ask(lambda: registry.engines.check_engine(named)) if named is not None else None
        release = registry.releases.release(ReleaseRef(channel.product, number))
        live = Live(number=number, release=release.digest, engine=release.content.engine)
        check = (
            whole
            if whole is not None and named == live.engine
            else ask(lambda: registry.engines.check_engine(live.engine))
        )
        decision = decide_rollback(
            number=number,
            was_live=_was_live(desk, channel, state, live),
            platform=release.content.platform,
            state=state,
            overrides=accepted,
            nodes=fit_of_nodes(
                desk,
                release,
                policy,
                must_know=False,
                records=partial(_records, registry, live.engine, check),
            ),
        )
        refuse(act, with_commands(registry, decision, state, number, reason, accepted))
        engine = check()
    change = RolledBack(to=live, reason=reason, overrides=decision.overrides)
    event, after = commit(desk, channel, state, change, engine)
    if not any(entry.live == live for entry in state.history):
        registry.releases.keep_whole(release)  # beyond the window: it may be being collected
    return Moved(event=event, before=state, after=after, decision=decision)


def _likely(state: ChannelState, to: int | None) -> Live | None:
    """What the rollback will look at if the channel is in `state`."""
    entries = rollback_candidates(state) if to is None else state.history
    return next((e.live for e in entries if to is None or e.live.number == to), None)


def _default_target(state: ChannelState, reason: str) -> int:
    found = rollback_candidates(state)
    if found:
        return found[0].live.number
    bad = [mark.number for mark in state.bad]
    hint = f"see `enginectl history {state.name}`"
    # The mark that came last is of what was live last.
    last = next((e.live.number for e in state.history[1:] if e.live.number in bad), None)
    if last is not None:
        hint += f"; a bad one after all: {command(state, last, reason, ('bad',))}"
    raise NotFound(
        f"{state.name}: no earlier good release to go back to"
        + (f"; marked bad: {', '.join(map(str, bad))}" if bad else ""),
        hint=hint,
        reference="no-rollback-target",
    )


def _was_live(desk: Desk, channel: ChannelRef, state: ChannelState, live: Live) -> bool:
    if any(entry.live == live for entry in state.history):
        return True
    # Beyond the folded window: only the whole log knows.
    return any(
        getattr(event.change, "to", None) == live
        for event, _ in desk.registry.channels.events(channel)
    )


def _records(
    registry: Registry, engine: Digest, check: Callable[[], StoredEngine]
) -> tuple[Record, ...]:
    """The engine's records, whether or not its bytes are whole: that is refused in its turn."""
    try:
        return check().records
    except EngineCIError:
        return registry.engines.records(engine)
