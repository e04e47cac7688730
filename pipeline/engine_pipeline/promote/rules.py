"""May this release go live, may this one come back: rules over values, numbered and in order.

Pure: time, actor, reports and states are arguments. Every rule gives a finding with both sides, so
a refusal lists everything that is missing at once, not one thing per attempt.

    promotion                              rollback
    1 freeze   none in force               1 was-live  was live on this channel before
    2 hold     none in force               2 changes   is not what is live now
    3 bad      not marked bad here         3 bad       not marked bad here
    4 fit      built for this target,      4 fit       built for this target,
               loads on the policy's nodes             loads on the policy's nodes
    5 upstream live there, long enough
    6 gates    latest report passed, fresh,
               with a baseline if one is live
    7 window   now is within one
    8 signed   build, reports, release
    9 approvals
"""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine_pipeline.promote.approvals import approvals_finding
from engine_pipeline.promote.duration import say_about, say_duration
from engine_pipeline.promote.findings import (
    OVERRIDABLE,
    Decision,
    Finding,
    deciding_reports,
)
from engine_pipeline.promote.gate_rule import gate_finding
from engine_pipeline.promote.window import window_finding
from engine_pipeline.trust.rules import signed_findings
from engine_pipeline.trust.standing import NOT_LOOKED_FOR
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from engine_pipeline.promote.findings import Candidate, Evidence, Wanted
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_pipeline.trust.standing import Signatures
    from engine_registry.digest import Digest
    from engine_registry.events import ChannelState, WasLive
    from engine_registry.record import Actor, Platform


def decide_promotion(
    *,
    candidate: Candidate,
    state: ChannelState,
    upstream: ChannelState | None,
    policy: ChannelPolicy,
    wanted: Mapping[str, Wanted],
    evidence: tuple[Evidence, ...],
    actor: Actor,
    now: datetime,
    overrides: frozenset[str] = frozenset(),
    signatures: Signatures = NOT_LOOKED_FOR,
    nodes: tuple[Finding, ...] = (),
    live_on: Mapping[str, Digest] = MappingProxyType({}),
) -> Decision:
    """May `candidate` go live on the channel that is in `state`?

    Args:
        candidate: the release.
        state: the channel now.
        upstream: the state of the policy's upstream channel; None if it names none.
        policy: the channel's rules.
        wanted: for each gate of the policy, what it must have been judged under.
        evidence: every report attached to the engine, in any order.
        actor: who promotes.
        now: aware UTC.
        overrides: names of rules in OVERRIDABLE whose refusal is accepted.
        signatures: everything attached to the engine, judged; needed if the policy wants any.
        nodes: what `nodes.fit_of_nodes` says; needed if the policy names any.
        live_on: engines that are live now, by channel; needed for every channel that some evidence
            found empty.
    """
    findings = [
        _freeze(state, now),
        _hold(state),
        _bad(candidate.release.number, state),
        fits(candidate.release.content.platform, state),
        *nodes,
    ]
    if policy.upstream is not None and upstream is not None:
        findings.append(_upstream(candidate, upstream, policy, now))
    findings += [
        gate_finding(
            name,
            wanted[name],
            evidence,
            candidate,
            max_age=policy.evidence_max_age,
            live_on=live_on,
            now=now,
        )
        for name in policy.gates
    ]
    if policy.windows:
        findings.append(window_finding(state.channel, policy.windows, now))
    reports = deciding_reports(policy.gates, wanted, evidence)
    findings += signed_findings(policy.signed, candidate.release, reports, signatures)
    findings.append(approvals_finding(candidate, state, policy, actor))
    return Decision(findings=_accept(findings, overrides))


def decide_rollback(
    *,
    number: int,
    was_live: bool,
    platform: Platform,
    state: ChannelState,
    overrides: frozenset[str] = frozenset(),
    nodes: tuple[Finding, ...] = (),
) -> Decision:
    """May release `number` come back? Freezes and holds do not stop a rollback."""
    live = state.live
    findings = [
        Finding(
            rule="was-live",
            holds=was_live,
            says=f"release {number} {'was' if was_live else 'was never'} live on {state.name}",
            hint=f"pick one from `enginectl history {state.name}`",
        ),
        Finding(
            rule="changes",
            holds=live is None or live.number != number,
            says=f"release {number} is {'what' if live and live.number == number else 'not what'} "
            f"is live on {state.name}",
            hint=f"run `enginectl status {state.name}`; there is nothing to undo",
            exit_code=ExitCode.INVALID,
        ),
        _bad(number, state),
        fits(platform, state),
        *nodes,
    ]
    return Decision(findings=_accept(findings, overrides))


def rollback_candidates(state: ChannelState) -> tuple[WasLive, ...]:
    """Releases to go back to, best first: most recently live, not marked bad, not live now."""
    bad = {mark.number for mark in state.bad}
    seen = {state.live.number} if state.live else set()
    found = []
    for entry in state.history[1:]:
        if entry.live.number in seen or entry.live.number in bad:
            continue
        seen.add(entry.live.number)
        found.append(entry)
    return tuple(found)


def fits(platform: Platform, state: ChannelState) -> Finding:
    """Was the engine built for the SKU that this channel serves on?"""
    return Finding(
        rule="fit",
        holds=platform.sku == state.target,
        says=f"engine was built for {platform.sku}, channel serves on {state.target}",
        hint=f"build the spec for {state.target}",
        exit_code=ExitCode.INCOMPATIBLE,
    )


def _accept(findings: list[Finding], overrides: frozenset[str]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            rule=f.rule,
            holds=False,
            says=f.says,
            hint=f.hint,
            exit_code=f.exit_code,
            overridden=True,
        )
        if not f.holds and f.rule in overrides & OVERRIDABLE
        else f
        for f in findings
    )


def _freeze(state: ChannelState, now: datetime) -> Finding:
    freeze = state.freeze
    active = freeze is not None and (freeze.until is None or now < freeze.until)
    if freeze is None or not active:
        return Finding(rule="freeze", holds=True, says=f"{state.name} is not frozen")
    until = f" until {freeze.until:%Y-%m-%d %H:%M}Z" if freeze.until else ""
    return Finding(
        rule="freeze",
        holds=False,
        says=f"{state.name} is frozen{until} by {freeze.actor.name}: {freeze.reason}",
        hint=f"wait, or `enginectl freeze {state.name} --lift --reason …`; rollback stays allowed",
    )


def _hold(state: ChannelState) -> Finding:
    hold = state.hold
    if hold is None:
        return Finding(rule="hold", holds=True, says=f"{state.name} is not on hold")
    return Finding(
        rule="hold",
        holds=False,
        says=f"{state.name} is on hold by {hold.actor.name}: {hold.reason}",
        hint=f"`enginectl hold {state.name} --lift --reason …` when promotion may go on",
    )


def _bad(number: int, state: ChannelState) -> Finding:
    mark = next((m for m in state.bad if m.number == number), None)
    return Finding(
        rule="bad",
        holds=mark is None,
        says=f"release {number} is not marked bad on {state.name}"
        if mark is None
        else f"release {number} is marked bad on {state.name}: {mark.reason}",
        hint="choose another release, or add `--override bad --reason …`",
    )


def _upstream(
    candidate: Candidate, upstream: ChannelState, policy: ChannelPolicy, now: datetime
) -> Finding:
    number = candidate.release.number
    soaked = longest_live(upstream, number, now)
    bad = any(mark.number == number for mark in upstream.bad)
    if soaked is None or bad:
        says = (
            f"release {number} was {'rolled back on' if bad else 'never live on'} {upstream.name}"
        )
        hint = f"`enginectl promote {candidate.release.name} --to {upstream.channel}` first"
        return Finding(rule="upstream", holds=False, says=says, hint=hint)
    left = policy.soak - soaked
    says = (
        f"release {number} was live on {upstream.name} for {say_about(soaked)}, "
        f"the channel asks for {say_duration(policy.soak)}"
    )
    hint = f"promote again in {say_about(left)}" if left > timedelta(0) else ""
    return Finding(rule="upstream", holds=left <= timedelta(0), says=says, hint=hint)


def longest_live(state: ChannelState, number: int, now: datetime) -> timedelta | None:
    """The longest time release `number` was live without a break; None if it never was."""
    best: timedelta | None = None
    until = now
    for entry in state.history:
        if entry.live.number == number:
            span = max(until - entry.since, timedelta(0))
            best = span if best is None else max(best, span)
        until = entry.since
    return best
