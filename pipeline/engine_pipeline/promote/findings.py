"""What the rules take and give: candidates, evidence, findings, decisions. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_registry.errors import ExitCode
from engine_registry.record import MAX_TEXT_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

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
        host_class: of the machine it was judged on.
        driver: of its GPUs; None for a CPU target, and of reports that do not say.
        quarantine_ends: the first day after which a case that it left out counts again.
    """

    gate: str
    outcome: Outcome
    policy: Digest
    suite: Digest
    report: Digest
    at: datetime
    host_class: str = ""
    driver: str | None = None
    runtime: Digest | None = None
    no_baseline: tuple[str, ...] = ()
    quarantine_ends: date | None = None

    @property
    def machine(self) -> str:
        """The kind of machine it was judged on."""
        return self.host_class + (f", driver {self.driver}" if self.driver else "")

    @property
    def decides(self) -> bool:
        """Whether it says something of the engine: neither trouble nor thin evidence does."""
        return self.outcome in {Outcome.PASSED, Outcome.FAILED}

    def replaces(self, older: Evidence) -> bool:
        """Whether it was made on the machine of an older one, as far as that one says."""
        same_host = self.host_class == older.host_class
        return same_host and older.driver in {None, self.driver}


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


def counting_evidence(gate: str, wanted: Wanted, evidence: Sequence[Evidence]) -> list[Evidence]:
    """Of the fitting reports of a gate, those that count: the latest first.

    After it, for every other kind of machine, the latest there that passed or failed: a pass on one
    machine hides no failure on another.
    """
    newest_first = sorted(
        fitting_evidence(gate, wanted, evidence), key=lambda e: e.at, reverse=True
    )
    counting = newest_first[:1]
    for one in newest_first[1:]:
        if one.decides and not any(later.replaces(one) for later in counting):
            counting.append(one)
    return counting


def deciding_reports(
    gates: Sequence[str], wanted: Mapping[str, Wanted], evidence: Sequence[Evidence]
) -> dict[str, tuple[Digest, ...]]:
    """Gate → its reports that count, the latest first; a gate that has none is left out."""
    counting = {name: counting_evidence(name, wanted[name], evidence) for name in gates}
    return {name: tuple(e.report for e in found) for name, found in counting.items() if found}


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
        # A finding quotes reasons, which may be as long as all that an event takes of this.
        return tuple(f"{f.rule}: {f.says}"[:MAX_TEXT_CHARS] for f in self.findings if f.overridden)
