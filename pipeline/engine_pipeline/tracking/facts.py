"""One thing that others may want to hear of, as the registry tells it. Pure.

A fact's id follows from what was stored, never from when it was read: whoever reads the registry
again gets the same ids, and so nothing is told twice by mistake.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

from pydantic import AwareDatetime

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import CREATED, GATE, OUTCOME, SUITE_NAME
from engine_pipeline.redact import redact
from engine_registry.changes import (
    Approved,
    Frozen,
    Held,
    HoldLifted,
    Prepared,
    Promoted,
    RolledBack,
    Thawed,
    Withdrawn,
)
from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json
from engine_registry.record import Actor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_registry.events import Event
    from engine_registry.record import Record, ReferrerLink, Release
    from engine_registry.refs import ChannelRef
    from engine_registry.retired import Retired


class Kind(StrEnum):
    """What happened."""

    BUILD_FINISHED = "build-finished"
    GATE_PASSED = "gate-passed"
    GATE_FAILED = "gate-failed"  # judged, and not good enough
    GATE_UNDECIDED = "gate-undecided"  # errored, or too little evidence
    RELEASED = "released"
    APPROVAL_NEEDED = "approval-needed"
    APPROVED = "approved"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled-back"
    FROZEN = "frozen"
    THAWED = "thawed"
    HOLD_SET = "hold-set"  # by a person, or by a rollback
    HOLD_LIFTED = "hold-lifted"
    DRIFT = "drift"
    GC = "gc"
    TEST = "test"  # only `enginectl notify test` sends it


class Fact(Value):
    """One fact.

    Attributes:
        id: what was stored, e.g. `event/tiny/cpu/prod/7/5fe2c1a09b3d`.
        product: MODEL/TARGET; None if it is about the whole registry.
        channel: MODEL/TARGET/CHANNEL.
        release: MODEL/TARGET:N.
        text: one line for people.
        details: plain JSON values, by kind.
    """

    id: str
    kind: Kind
    at: AwareDatetime
    product: str | None = None
    channel: str | None = None
    release: str | None = None
    engine: Digest | None = None
    actor: Actor | None = None
    text: str
    details: dict[str, Any] = {}


_OF_OUTCOME = {Outcome.PASSED: Kind.GATE_PASSED, Outcome.FAILED: Kind.GATE_FAILED}


def build_id(engine: Digest, build_key: Digest) -> str:
    """The id of the fact that a build is recorded."""
    return f"build/{engine.hex}/{build_key.hex}"


def report_id(engine: Digest, report: Digest) -> str:
    """The id of the fact that a report is attached to an engine."""
    return f"report/{engine.hex}/{report.hex}"


def release_id(name: str) -> str:
    """The id of the fact that a release was cut."""
    return f"release/{name}"


def _line(text: str) -> str:
    """What a person wrote, on one line and without secrets."""
    return " ".join(redact(text).split())


def of_record(record: Record) -> Fact:
    """A build was recorded."""
    return Fact(
        id=build_id(record.engine, record.build_key),
        kind=Kind.BUILD_FINISHED,
        at=record.built_at,
        product=f"{record.model}/{record.target}",
        engine=record.engine,
        actor=record.built_by,
        text=f"built {record.spec}: engine {record.engine.short}, by {record.built_by.name}",
        details={
            "build_key": str(record.build_key),
            "spec": record.spec,
            "precision": record.precision,
            "size_bytes": record.size_bytes,
            "wall_s": record.build_wall_s,
        },
    )


def of_report(record: Record, link: ReferrerLink, reasons: Iterable[str]) -> Fact:
    """A report was attached to an engine; `reasons` are what decided it."""
    notes = link.annotations
    gate, outcome = notes[GATE], notes.get(OUTCOME, "?")
    why = [_line(reason) for reason in reasons][:20]
    tail = f": {why[0]}" if why else ""
    return Fact(
        id=report_id(record.engine, link.manifest),
        kind=_OF_OUTCOME.get(Outcome(outcome), Kind.GATE_UNDECIDED),
        at=datetime.fromisoformat(notes[CREATED]),
        product=f"{record.model}/{record.target}",
        engine=record.engine,
        text=f"gate {gate} {outcome} on engine {record.engine.short} of {record.spec}{tail}"[:600],
        details={
            "gate": gate,
            "outcome": outcome,
            "suite": notes.get(SUITE_NAME),
            "report": str(link.manifest),
            "reasons": why,
        },
    )


def of_release(release: Release) -> Fact:
    """A release was cut."""
    return Fact(
        id=release_id(release.name),
        kind=Kind.RELEASED,
        at=release.created_at,
        product=f"{release.model}/{release.target}",
        release=release.name,
        engine=release.content.engine,
        actor=release.created_by,
        text=f"released {release.name}: engine {release.content.engine.short}, "
        f"by {release.created_by.name}",
        details={"serving_image": release.content.serving_image},
    )


def of_retired(retired: Retired) -> Fact:
    """Garbage collection removed a release."""
    name = f"{retired.model}/{retired.target}:{retired.number}"
    return Fact(
        id=f"retired/{name}",
        kind=Kind.GC,
        at=retired.at,
        product=f"{retired.model}/{retired.target}",
        release=name,
        engine=retired.engine,
        actor=retired.actor,
        text=f"removed {name}: {_line(retired.reason)}",
        details={"reason": _line(retired.reason)},
    )


def of_collection(minute: datetime, engines: Iterable[Digest]) -> Fact:
    """Garbage collection removed engines within one minute."""
    gone = sorted({str(engine) for engine in engines})
    which = Digest.of(canonical_json(list(gone))).short
    return Fact(
        id=f"gc/{minute:%Y-%m-%dT%H:%M}/{which}",
        kind=Kind.GC,
        at=minute,
        text=f"garbage collection removed {len(gone)} engine{'s' if len(gone) != 1 else ''}",
        details={"engines": gone[:100], "count": len(gone)},
    )


def of_event(ref: ChannelRef, event: Event, digest: Digest) -> tuple[Fact, ...]:
    """What one event of a channel tells; a rollback also sets a hold.

    A set that is prepared or withdrawn tells nothing: nothing has gone live.
    """
    change = event.change
    by = event.actor.name
    match change:
        case Promoted():
            facts = [(Kind.PROMOTED, change.to.number, f"{ref} is now release {change.to.number}")]
        case RolledBack():
            number = change.to.number
            facts = [
                (Kind.ROLLED_BACK, number, f"{ref} was rolled back to release {number}"),
                (Kind.HOLD_SET, number, f"{ref} is on hold since it was rolled back"),
            ]
        case Approved():
            facts = [(Kind.APPROVED, change.number, f"release {change.number} approved on {ref}")]
        case Frozen():
            until = f" until {change.until:%Y-%m-%d %H:%M}Z" if change.until else ""
            facts = [(Kind.FROZEN, 0, f"{ref} is frozen{until}")]
        case Thawed():
            facts = [(Kind.THAWED, 0, f"{ref} is no longer frozen")]
        case Held():
            facts = [(Kind.HOLD_SET, 0, f"{ref} is on hold")]
        case HoldLifted():
            facts = [(Kind.HOLD_LIFTED, 0, f"{ref} is no longer on hold")]
        case Prepared() | Withdrawn():
            facts = []
        case _:
            assert_never(change)
    reason = _line(change.reason) if change.reason else None
    engine = change.to.engine if isinstance(change, Promoted | RolledBack) else None
    place = f"event/{ref}/{event.number}/{digest.short}"
    return tuple(
        Fact(
            id=place if index == 0 else f"{place}/{kind}",
            kind=kind,
            at=event.at,
            product=str(ref.product),
            channel=str(ref),
            release=f"{ref.product}:{number}" if number else None,
            engine=engine,
            actor=event.actor,
            text=f"{text}, by {by}" + (f": {reason}" if reason else ""),
            details={"event": event.number, "reason": reason},
        )
        for index, (kind, number, text) in enumerate(facts)
    )


def approval_needed(ref: ChannelRef, cause: Fact, wanted: int, given: int) -> Fact:
    """A release waits for people, since `cause` made it a candidate of the channel."""
    left = wanted - given
    return Fact(
        id=f"approval/{ref}/{cause.release}",
        kind=Kind.APPROVAL_NEEDED,
        at=cause.at,
        product=cause.product,
        channel=str(ref),
        release=cause.release,
        engine=cause.engine,
        actor=cause.actor,
        text=f"{cause.release} needs {left} more {'approval' if left == 1 else 'approvals'} for "
        f"{ref}: `enginectl approve {cause.release} --on {ref.channel}`",
        details={"wanted": wanted, "given": given, "because": cause.id},
    )


def of_drift(
    target: str, channel: str, differences: list[dict[str, str]], at: datetime, event: int
) -> Fact:
    """A target was seen to differ from its channel; the same difference is one fact a day."""
    seen = [{key: _line(text) for key, text in one.items()} for one in differences]
    which = Digest.of(canonical_json({"target": target, "event": event, "seen": seen})).short
    product = channel.rpartition("/")[0]
    return Fact(
        id=f"drift/{at:%Y-%m-%d}/{channel}/{which}",
        kind=Kind.DRIFT,
        at=at,
        product=product,
        channel=channel,
        text=f"{target} differs from {channel} in {len(seen)}: "
        + ", ".join(one["what"] for one in seen)[:300],
        details={"target": target, "event": event, "differences": seen},
    )
