"""Checks of one channel: every event whole, the chain unbroken, the pointer equal to the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.documents import unseal
from engine_registry.errors import EngineCIError, IntegrityError, NotFound
from engine_registry.events import (
    ChannelState,
    Event,
    Live,
    Prepared,
    Promoted,
    RolledBack,
    Withdrawn,
    fold,
)
from engine_registry.mismatch import MismatchKind
from engine_registry.record import Release
from engine_registry.refs import ReleaseRef
from engine_registry.retired import Retired
from engine_registry.sets import Fate, Member, SetDecisions

if TYPE_CHECKING:
    from engine_registry.digest import Digest
    from engine_registry.mismatch import Findings
    from engine_registry.refs import ChannelRef
    from engine_registry.sets import SetDecision
    from engine_registry.store import PointerValue, Stores


def check_channel(stores: Stores, ref: ChannelRef, findings: Findings) -> None:
    """Read the pointer, then replay the log, so that a move in between shows nothing wrong."""
    name = layout.head(ref)
    try:
        pointer = stores.pointers.read(name)
    except EngineCIError as error:
        findings.add(name, MismatchKind.UNREADABLE, expected="a pointer", found=error.message)
        pointer = None
    states = _replay(stores, ref, findings)
    if states is not None:
        _check_pointer(name, pointer, states, findings)
        _check_pending(stores, ref, states[-1], findings)


def _replay(stores: Stores, ref: ChannelRef, findings: Findings) -> list[ChannelState] | None:
    """The state after each event, from the empty one on; None if the log does not fold."""
    state = ChannelState(model=ref.product.model, target=ref.product.target, channel=ref.channel)
    states = [state]
    broken = False
    children = stores.documents.children(layout.events(ref))
    numbers = [n for n in map(layout.number_of, children) if n is not None]
    for missing in sorted(set(range(1, max(numbers, default=0))) - set(numbers)):
        findings.add(
            layout.event(ref, missing),
            MismatchKind.MISSING,
            expected=f"event {missing} of a log that goes on to {numbers[-1]}",
            found="absent",
        )
        broken = True
    for number in numbers:
        event, digest = _event(stores, ref, number, findings)
        if event is None or digest is None:
            broken = True
            continue
        _check_release(stores, ref, event, findings)
        _check_set(stores, ref, event, findings)
        if broken:
            continue
        try:
            state = fold(state, event, digest)
        except IntegrityError as error:
            broken = True
            findings.add(
                layout.event(ref, number),
                MismatchKind.INCONSISTENT,
                expected=f"the event after {state.number} ({state.last})",
                found=error.message,
            )
        else:
            states.append(state)
    return None if broken else states


def _event(
    stores: Stores, ref: ChannelRef, number: int, findings: Findings
) -> tuple[Event, Digest] | tuple[None, None]:
    name = layout.event(ref, number)
    try:
        return unseal(stores.documents.read(name), Event, name)
    except EngineCIError as error:
        damaged = isinstance(error, IntegrityError)
        findings.add(
            name,
            MismatchKind.DAMAGED if damaged else MismatchKind.UNREADABLE,
            expected="a whole Event",
            found=error.message,
        )
        return None, None


def _check_release(stores: Stores, ref: ChannelRef, event: Event, findings: Findings) -> None:
    change = event.change
    if not isinstance(change, Promoted | RolledBack | Prepared):
        return
    name = layout.event(ref, event.number)
    target = ReleaseRef(ref.product, change.to.number)
    release_name = layout.release(target)
    try:
        release, digest = unseal(stores.documents.read(release_name), Release, release_name)
    except NotFound:
        if not _is_retired(stores, target, change.to):
            findings.add(
                release_name, MismatchKind.MISSING, expected=f"named by {name}", found="absent"
            )
        return
    except EngineCIError:
        return  # reported where the release itself is checked
    stored = Live(number=release.number, release=digest, engine=release.content.engine)
    if stored != change.to:
        findings.add(
            name,
            MismatchKind.INCONSISTENT,
            expected=f"release {target} {stored.release} of engine {stored.engine}",
            found=f"release {target} {change.to.release} of engine {change.to.engine}",
        )


def _check_set(stores: Stores, ref: ChannelRef, event: Event, findings: Findings) -> None:
    """A promotion in a set, or its end, rests on the decision on all of the set."""
    change = event.change
    if not isinstance(change, Promoted | Withdrawn) or change.set is None:
        return
    by = layout.event(ref, event.number)
    name = layout.release_set(change.set)
    try:
        decision = SetDecisions(stores.documents).on(change.set)
    except EngineCIError:
        return  # reported where the decision itself is checked
    if decision is None:
        findings.add(name, MismatchKind.MISSING, expected=f"named by {by}", found="absent")
        return
    named = any(
        member.channel == str(ref) and isinstance(change, Promoted) and member.to == change.to
        for member in decision.members
    )
    wanted = Fate.COMMITTED if isinstance(change, Promoted) else Fate.WITHDRAWN
    if decision.fate is not wanted or named is not isinstance(change, Promoted):
        findings.add(
            by, MismatchKind.INCONSISTENT, expected=_says(change), found=_decided(decision)
        )


def _check_pending(
    stores: Stores, ref: ChannelRef, state: ChannelState, findings: Findings
) -> None:
    """The last event may reserve the channel for a set: decided or not, that is no damage."""
    pending = state.pending
    if pending is None:
        return
    name = layout.event(ref, pending.event)
    try:
        decision = SetDecisions(stores.documents).on(pending.prepared.set)
    except EngineCIError:
        return  # reported where the decision itself is checked
    member = Member(channel=str(ref), event=pending.event, to=pending.to)
    if decision is None:
        findings.add(
            name,
            MismatchKind.PENDING,
            expected=f"a decision on set {pending.prepared.set}",
            found=f"none since {pending.at:%Y-%m-%d %H:%M:%S}Z; rollback does not wait for it",
        )
    elif decision.fate is Fate.COMMITTED and member not in decision.members:
        findings.add(
            name,
            MismatchKind.INCONSISTENT,
            expected=_decided(decision),
            found=f"event {pending.event}, which reserves {ref} for it",
        )
    else:
        findings.add(
            name,
            MismatchKind.BEHIND,
            expected=f"an event that records: {_decided(decision)}",
            found="none yet; the next move writes it, readers do not need it",
        )


def _says(change: Promoted | Withdrawn) -> str:
    fate = Fate.COMMITTED if isinstance(change, Promoted) else Fate.WITHDRAWN
    return f"set {change.set} {fate}" + (" with this release" if fate is Fate.COMMITTED else "")


def _decided(decision: SetDecision) -> str:
    channels = ", ".join(member.channel for member in decision.members)
    return f"set {decision.set} {decision.fate}" + (f" on {channels}" if channels else "")


def _is_retired(stores: Stores, ref: ReleaseRef, named: Live) -> bool:
    """Whether the release is gone on purpose, and was the one that the event names."""
    name = layout.retired(ref)
    try:
        gone, _ = unseal(stores.documents.read(name), Retired, name)
    except EngineCIError:
        return False  # damaged: reported where the document itself is checked
    return (gone.release, gone.engine) == (named.release, named.engine)


def _check_pointer(
    name: str, pointer: PointerValue | None, states: list[ChannelState], findings: Findings
) -> None:
    last = states[-1]
    number = 0
    if pointer is not None:
        try:
            state, _ = unseal(pointer.data, ChannelState, name)
        except IntegrityError as error:
            findings.add(
                name, MismatchKind.DAMAGED, expected="a whole ChannelState", found=error.message
            )
            return
        number = state.number
        if number > last.number or state != states[number]:
            at = min(number, last.number)
            findings.add(
                name,
                MismatchKind.INCONSISTENT,
                expected=f"event {at}: {states[at].digest}, by replay",
                found=f"event {number}: {state.digest}",
            )
            return
    if number < last.number:
        findings.add(
            name,
            MismatchKind.BEHIND,
            expected=f"event {last.number}",
            found=f"event {number}; the next move catches it up",
        )
