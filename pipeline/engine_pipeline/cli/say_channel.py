"""Channels, moves and releases as rows and documents: shared by the release commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.cli.answer import Answer
from engine_pipeline.cli.render import when

if TYPE_CHECKING:
    from engine_pipeline.cli.render import Page
    from engine_pipeline.promote.moves import Moved
    from engine_registry.events import ChannelState, Event, Live


def live_text(live: Live | None) -> str:
    """`release 7 (engine 4f2a…)`, or `nothing`."""
    return f"release {live.number} (engine {live.engine.short})" if live else "nothing"


def flags(state: ChannelState) -> str:
    """Those of `hold`, `frozen` and `reserved` that hold, or `-`."""
    words = {"hold": state.hold, "frozen": state.freeze, "reserved": state.pending}
    found = [word for word, what in words.items() if what is not None]
    return " ".join(found) or "-"


def state_document(state: ChannelState) -> dict[str, Any]:
    """The state as JSON values, with the channel's name."""
    return {
        "channel": state.name,
        **state.model_dump(mode="json", exclude={"schema_version", "channel"}),
    }


def moved_answer(moved: Moved, did: str, unchanged: str) -> Answer:
    """The answer of an act on a channel.

    Args:
        moved: its result.
        did: what happened, for people.
        unchanged: what to say if nothing had to happen.
    """
    decision = moved.decision
    document = {
        "changed": moved.event is not None,
        "event": moved.event.model_dump(mode="json") if moved.event else None,
        "findings": [
            {"rule": f.rule, "holds": f.holds, "says": f.says, "overridden": f.overridden}
            for f in (decision.findings if decision else ())
        ],
        "state": state_document(moved.after),
    }

    def page(out: Page) -> None:
        out.verdict("ok" if moved.event else "unchanged", did if moved.event else unchanged)
        if moved.event is None:
            return
        event = moved.event
        out.facts(
            [
                ("channel", moved.after.name),
                ("before", live_text(moved.before.live)),
                ("now", live_text(moved.after.live)),
                ("state", flags(moved.after) if flags(moved.after) != "-" else None),
                ("event", f"{event.number} at {when(event.at)} by {event.actor.name}"),
            ]
        )
        for finding in decision.findings if decision else ():
            mark = "overridden" if finding.overridden else "ok"
            out.wrapped(f"{mark} {finding.rule}: {finding.says}", "    ")

    return Answer(document=document, page=page)


def short_set(name: str) -> str:
    """A set's name, cut to what tells it from others: `set-1a2b3c4d`."""
    return name[: len("set-") + 8]


def event_row(event: Event) -> tuple[str, str, str, str, str]:
    """Number, time, kind, what, who: one row of a history."""
    change = event.change
    to = getattr(change, "to", None)
    what = live_text(to) if to else ""
    together = getattr(change, "set", None)
    if together:
        what = f"{what} in {short_set(together)}" if what else short_set(together)
    number = getattr(change, "number", None)
    if number is not None:
        what = f"release {number}"
    reason = getattr(change, "reason", None)
    if reason:
        what = f"{what}: {reason}" if what else reason
    overrides = getattr(change, "overrides", ())
    if overrides:
        what += f" [overrode {'; '.join(overrides)}]"
    return str(event.number), when(event.at), change.kind, what, event.actor.name
