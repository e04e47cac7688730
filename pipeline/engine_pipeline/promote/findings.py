"""What the rules take and give: candidates, evidence, findings, decisions. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from engine_pipeline.gates.outcome import Outcome
    from engine_registry.digest import Digest
    from engine_registry.record import Actor, Release

OVERRIDABLE = frozenset({"bad", "fit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says.

    Attributes:
        rule: its name, as in the table above.
        holds: whether the rule is satisfied.
        says: one line with both sides.
        hint: the next command if it is not.
        exit_code: the process's answer if this is the first rule broken.
        overridden: it is broken, and the actor said why that is accepted.
    """

    rule: str
    holds: bool
    says: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.POLICY
    overridden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A report as the rules see it.

    Attributes:
        policy: digest of the gate policy it was judged under.
        suite: digest of the suite it was judged by.
        report: manifest digest of the attached report.
        runtime: digest of what the server was started with; None if the report does not say.
        no_baseline: channels whose live engine it should have been compared with, and had none.
        quarantine_ends: the first day after which a case that it left out counts again.
    """

    gate: str
    outcome: Outcome
    policy: Digest
    suite: Digest
    report: Digest
    at: datetime
    runtime: Digest | None = None
    no_baseline: tuple[str, ...] = ()
    quarantine_ends: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a gate's evidence must have been judged under, today.

    Attributes:
        runtime: digest of the runtime configuration of the release in question; None takes any.
    """

    policy: Digest
    suite: Digest
    runtime: Digest | None = None

    def takes(self, runtime: Digest | None) -> bool:
        """Whether a report made with this runtime configuration, or silent on it, counts."""
        return runtime is None or self.runtime is None or runtime == self.runtime


def fitting_evidence(gate: str, wanted: Wanted, evidence: Sequence[Evidence]) -> list[Evidence]:
    """The reports of a gate that were judged under what is wanted today."""
    want = (gate, wanted.policy, wanted.suite)
    return [e for e in evidence if (e.gate, e.policy, e.suite) == want and wanted.takes(e.runtime)]


def deciding_reports(
    gates: Sequence[str], wanted: Mapping[str, Wanted], evidence: Sequence[Evidence]
) -> dict[str, Digest]:
    """Gate → its latest fitting report; a gate that has none is left out."""
    fitting = {name: fitting_evidence(name, wanted[name], evidence) for name in gates}
    return {name: max(found, key=lambda e: e.at).report for name, found in fitting.items() if found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The release in question and who made it."""

    release: Release
    digest: Digest
    built_by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All findings, in the order of the rules."""

    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Rules that say no."""
        return tuple(f for f in self.findings if not f.holds and not f.overridden)

    @property
    def overrides(self) -> tuple[str, ...]:
        """What was accepted although a rule said no."""
        return tuple(f"{f.rule}: {f.says}" for f in self.findings if f.overridden)
