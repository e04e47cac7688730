"""The rule on a gate's evidence: the reports that count, and what may be wrong with them. Pure.

1  there is one, under the bars, suite and server settings of today
2  the latest passed, and none of another kind of machine failed
3  the latest is fresh
4  where nothing was live to compare with, nothing else is live now
5  no case that it left out because of a quarantine counts again today
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.duration import say_about, say_duration
from engine_pipeline.promote.findings import Finding, counting_evidence
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from engine_pipeline.promote.findings import Candidate, Evidence, Wanted
    from engine_registry.digest import Digest


def gate_finding(
    name: str,
    wanted: Wanted,
    evidence: tuple[Evidence, ...],
    candidate: Candidate,
    *,
    max_age: timedelta,
    live_on: Mapping[str, Digest],
    now: datetime,
) -> Finding:
    """Does what is attached to the engine satisfy the gate?

    Args:
        name: the gate.
        wanted: what it must have been judged under.
        evidence: every report attached to the engine.
        candidate: the release in question.
        max_age: how old a passed report may be.
        live_on: engines that are live now, by channel.
        now: aware UTC.
    """
    engine = candidate.release.content.engine
    command = f"`enginectl gate {candidate.release.name} --gate {name}`"
    same = [e for e in evidence if e.gate == name]
    counting = counting_evidence(name, wanted, evidence)
    if not counting:
        why = "by no report"
        if same:
            why = "only under an older policy or suite, or with other settings of its server"
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: engine {engine.short} is judged {why}",
            hint=f"run {command}",
        )
    latest = counting[0]
    if latest.outcome is not Outcome.PASSED:
        judged = latest.outcome is Outcome.FAILED
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: latest report {latest.report.short} {latest.outcome}, want passed",
            hint=f"read it with `enginectl show {engine.short} --report {latest.report.short}`"
            + ("" if judged else f", then run {command}"),
            exit_code=ExitCode.REFUSED if judged else ExitCode.COULD_NOT_JUDGE,
        )
    if (failed := failed_elsewhere(counting)) is not None:
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: {failed}",
            hint=f"run {command} there once it is mended, or name the machines that count in "
            f"judged_on of gate {name}",
            exit_code=ExitCode.REFUSED,
        )
    if (stale := overtaken(latest, engine, live_on, now)) is not None:
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: report {latest.report.short} {stale}",
            hint=f"run {command}",
        )
    age = now - latest.at
    return Finding(
        rule="gates",
        holds=age <= max_age,
        says=f"gate {name}: report {latest.report.short} passed {say_about(age)} ago, "
        f"the channel accepts {say_duration(max_age)}",
        hint=f"run {command} --again",
    )


def failed_elsewhere(counting: Sequence[Evidence]) -> str | None:
    """What failed on another kind of machine than the latest passed on; None: nothing."""
    latest = counting[0]
    for one in counting[1:]:
        if one.outcome is Outcome.FAILED:
            return (
                f"report {latest.report.short} {latest.outcome} on {latest.machine}, report "
                f"{one.report.short} failed on {one.machine}; want none failed"
            )
    return None


def overtaken(
    latest: Evidence, engine: Digest, live_on: Mapping[str, Digest], now: datetime
) -> str | None:
    """What has happened since a report passed that it knows nothing of; None: nothing."""
    for channel in latest.no_baseline:
        live = live_on.get(channel)
        # An engine that is itself live has nothing to be compared with.
        if live is not None and live != engine:
            return (
                f"passed without a baseline, nothing was live on {channel}; engine {live.short} "
                "is live there now and was not compared with"
            )
    ends = latest.quarantine_ends
    if ends is not None and now.date() > ends:
        return f"left out cases in quarantine; that ended on {ends}, and they count again"
    return None
