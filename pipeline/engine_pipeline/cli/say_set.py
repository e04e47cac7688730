"""Releases that move together, as pages and documents: what each lacks, and what became of it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from engine_pipeline.cli.answer import Answer
from engine_pipeline.cli.say_channel import live_text, short_set, state_document
from engine_registry.errors import ExitCode
from engine_registry.sets import Fate

if TYPE_CHECKING:
    from engine_pipeline.cli.render import Page
    from engine_pipeline.promote.findings import Finding
    from engine_pipeline.promote.sets import SetMember, SetOutcome
    from engine_registry.events import Pending
    from engine_registry.sets import SetDecision

_WIDTH = 100


def set_answer(outcome: SetOutcome, channel: str, *, was_asked_only: bool) -> Answer:
    """The answer of a promotion of several releases, or of a look at what they lack.

    Args:
        outcome: its result.
        channel: where they were to go, for people.
        was_asked_only: nothing was to be moved.
    """
    document: dict[str, Any] = {
        "changed": outcome.name is not None,
        "ready": not outcome.lacking,
        "set": outcome.name,
        "members": [_member(member) for member in outcome.members],
    }
    code = ExitCode.DONE
    if outcome.lacking:
        first = outcome.lacking[0].lacks[0]
        code = first.exit_code
        document["error"] = {
            "reference": f"rule-{first.rule}",
            "message": _summary(outcome, channel),
            "hint": first.hint,
            "exit_code": int(code),
        }

    def page(out: Page) -> None:
        if outcome.lacking:
            out.verdict("refused", _summary(outcome, channel))
        elif was_asked_only:
            out.verdict("ok", f"{_count(outcome)} ready for {channel}; nothing was moved")
        elif outcome.name is None:
            out.verdict("unchanged", f"{_count(outcome)} live on {channel} already")
        else:
            out.verdict("ok", f"{_count(outcome)} live on {channel} ({outcome.name})")
        for member in outcome.members:
            _draw(out, member)

    return Answer(document=document, page=page, exit_code=code)


def pending_lines(state_name: str, pending: Pending, decision: SetDecision | None) -> list[str]:
    """What a channel's last event means if it reserves the channel for a set; at most 100 wide."""
    what = f"{state_name} is reserved for release {pending.to.number}"
    name = short_set(pending.prepared.set)
    if decision is None:
        text = (
            f"{what} since {pending.at:%Y-%m-%d %H:%M:%S}Z by {pending.actor.name} ({name}): it "
            "goes live with the others of its set, or none does; rollback, freeze and hold do not "
            "wait for it"
        )
    elif decision.fate is Fate.COMMITTED:
        text = (
            f"{name} went live at {decision.at:%Y-%m-%d %H:%M:%S}Z by {decision.actor.name}: "
            f"release {pending.to.number} is live on {state_name}; the next move records it"
        )
    else:
        text = (
            f"{name} was withdrawn at {decision.at:%Y-%m-%d %H:%M:%S}Z by {decision.actor.name} "
            f"({decision.reason}): release {pending.to.number} did not go live; the next move "
            "records it"
        )
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _count(outcome: SetOutcome) -> str:
    count = len(outcome.members)
    return f"{count} releases are" if count > 1 else f"{outcome.members[0].wish.release.name} is"


def _summary(outcome: SetOutcome, channel: str) -> str:
    count, lacking = len(outcome.members), len(outcome.lacking)
    if count == 1:
        return f"{outcome.members[0].wish.release.name} is not ready for {channel}"
    return f"{count} releases to {channel}: {lacking} not ready, none was moved"


def _draw(out: Page, member: SetMember) -> None:
    name = member.wish.release.name
    before, after = member.before.live, member.after.live
    if member.lacks:
        out.line(f"  {name} lacks")
    elif before != after:
        out.line(f"  {name}: {live_text(before)} -> {live_text(after)}")
    elif member.is_live:
        out.line(f"  {name}: live already")
    else:
        out.line(f"  {name}: ready; {live_text(before)} is live")
    for finding in member.lacks:
        _wrapped(out, f"{finding.rule}: {finding.says}", 4)
        if finding.hint:
            _wrapped(out, f"next: {finding.hint}", 6)
    for finding in _findings(member):
        if finding.overridden:
            _wrapped(out, f"overridden {finding.rule}: {finding.says}", 4)


def _wrapped(out: Page, text: str, indent: int) -> None:
    for line in textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    ):
        out.line(line)


def _member(member: SetMember) -> dict[str, Any]:
    return {
        "release": member.wish.release.name,
        "channel": str(member.wish.channel),
        "ready": not member.lacks,
        "live": member.is_live,
        "changed": member.before.live != member.after.live,
        "findings": [
            {
                "rule": finding.rule,
                "holds": finding.holds,
                "says": finding.says,
                "hint": finding.hint,
                "overridden": finding.overridden,
            }
            for finding in _findings(member)
        ],
        "state": state_document(member.after),
    }


def _findings(member: SetMember) -> tuple[Finding, ...]:
    """Everything the rules say, and what is in the way before they are asked."""
    asked = member.judged.decision.findings if member.judged else ()
    return (*(finding for finding in member.lacks if finding not in asked), *asked)
