"""Where a gate's bars stand in the noise: the same engine measured again and again. Pure.

Stored in the project, beside the suite, so that whoever reads or changes a bar sees how far it is
from what a good engine shows by chance:

    golden_prompts/<suite>/calibration/<host class>.json

A bar within CHANCE deviations of the mean fails good engines by chance; one beyond NEVER is missed
by nothing but a catastrophe, and so says nothing of a slowdown. Bars that can hardly ever fail
whatever is measured are `idle_bars`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_pipeline.gates.calibration_bars import Bar, Kind
from engine_pipeline.gates.calibration_evidence import evidence_of
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.record import Text
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CHANCE = 2.0
NEVER = 6.0
# A score that catches only the loss of so many of the cases that pass.
CATASTROPHE = 0.5
LEAST_RUNS = 3
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class ErrorRates(Value):
    """What a proposed bar is chosen for.

    Attributes:
        false_alarm: how often the engine as it is may miss the bar.
        miss: how often one that is worse by `catches` may meet it.
    """

    false_alarm: Share = 0.01
    miss: Share = 0.05


class WorthCatching(Value):
    """The smallest worsening that matters: from it follows how much has to be measured.

    Attributes:
        change: of a time or a rate, as a share of it.
        drop: of a score, as a share of the cases.
    """

    change: Share = 0.1
    drop: Share = 0.05


class BarEvidence(Value):
    """One bar and what was measured.

    Attributes:
        part: of the gate, whose basis it rests on.
        bar: as it stood in channels.yaml; None: there is none for this metric.
        mean, deviation, n: over runs, of the value that the bar is compared with.
        proposed: a bar that keeps the stated error rates; None: chance plays no part in it.
        catches: the smallest worsening that `proposed` catches, as a share.
        catches_now: what the bar catches as it stood.
        of: requests, cases or prompts that each value came from.
        needs: how many it takes to catch the smallest worsening that matters.
    """

    part: Text
    bar: float | None
    mean: float
    deviation: Annotated[float, Field(ge=0.0)]
    n: Annotated[int, Field(ge=LEAST_RUNS)]
    proposed: float | None
    catches: float | None
    catches_now: float | None
    of: Annotated[int, Field(ge=0)]
    needs: int | None


class Unsteady(Value):
    """A case that passed sometimes, or one that must pass and never did."""

    must: bool
    passed: Annotated[int, Field(ge=0)]
    asked: Annotated[int, Field(ge=1)]


class CasesEvidence(Value):
    """The suite's cases over all runs.

    Attributes:
        must: how many have to pass.
        must_fail_at_most: how often one of them fails in a run by chance, at most, as far as so
            many runs can tell (95 %); None if one of them did.
        unsteady: by id.
    """

    cases: Annotated[int, Field(ge=1)]
    runs: Annotated[int, Field(ge=1)]
    must: Annotated[int, Field(ge=0)]
    must_fail_at_most: float | None
    unsteady: dict[Slug, Unsteady] = {}


class GateCalibration(Value):
    """One gate on one class of hosts.

    Attributes:
        basis: by part of the gate, digest of what it measures; with another one this says nothing.
        dropped: runs whose speed was disturbed and does not count.
        bars: by path in the gate.
        cases: None if no prompts were asked.
    """

    engine: Digest
    at: AwareDatetime
    rates: ErrorRates
    worth: WorthCatching = WorthCatching()
    runs: Annotated[int, Field(ge=1)]
    dropped: Annotated[int, Field(ge=0)] = 0
    basis: dict[str, Digest]
    bars: dict[str, BarEvidence]
    cases: CasesEvidence | None = None

    def with_parts_of(self, before: GateCalibration | None) -> GateCalibration:
        """The same, with the parts that were measured before and not this time.

        They are kept only beside what was measured for the same purpose, on the same engine.
        """
        alike = before is not None and (before.engine, before.rates, before.worth) == (
            self.engine,
            self.rates,
            self.worth,
        )
        if before is None or not alike:
            return self
        left = {part: digest for part, digest in before.basis.items() if part not in self.basis}
        bars = {name: one for name, one in before.bars.items() if one.part in left}
        return self.model_copy(
            update={
                "basis": self.basis | left,
                "bars": bars | self.bars,
                "cases": self.cases or before.cases,
            }
        )


class Calibration(Document):
    """All gates of one suite on one class of hosts."""

    host_class: Text
    gates: dict[Slug, GateCalibration]


def file_name(host_class: str) -> str:
    """The name of the file for a class of hosts."""
    return re.sub(r"[^a-z0-9]+", "-", host_class.lower()).strip("-") + ".json"


def evidence(
    values: Mapping[str, Sequence[float]],
    bars: Iterable[Bar],
    rates: ErrorRates,
    worth: WorthCatching,
) -> dict[str, BarEvidence]:
    """From the values that each bar is compared with, a run each, to what is known of the bar."""
    return {
        bar.name: evidence_of(bar, values[bar.name], rates, worth)
        for bar in bars
        if len(values.get(bar.name, ())) >= LEAST_RUNS
    }


def warnings(
    gate: str, bars: Sequence[Bar], basis: Mapping[str, Digest], known: GateCalibration
) -> list[str]:
    """What is wrong with the bars of a gate as they stand now, given what was measured.

    Args:
        gate: its name.
        bars: of the policy as it is now.
        basis: of the policy as it is now.
        known: what was measured.
    """
    stale = {part for part in known.basis if basis.get(part) != known.basis[part]}
    told = [
        f"gate {gate}: {part} was calibrated on something else than it measures now; run "
        f"`enginectl calibrate {gate}` again"
        for part in sorted(stale)
    ]
    for bar in bars:
        one = known.bars.get(bar.name)
        if one is None or one.part in stale or bar.value is None:
            continue
        if (why := _wrong(bar, bar.value, one)) is not None:
            told.append(
                f"gate {gate}: {bar.name} {bar.value:g}, measured {one.mean:g} ± "
                f"{one.deviation:g} (n {one.n}): {why}"
            )
    if known.cases is not None and not any(part in stale for part in ("quality", "under_load")):
        told += [
            f"gate {gate}: case {name} must pass and passed {one.passed} of {one.asked} times: a "
            "good engine fails by chance; mend it, quarantine it, or let it score"
            for name, one in known.cases.unsteady.items()
            if one.must
        ]
    return told


def _wrong(bar: Bar, value: float, one: BarEvidence) -> str | None:
    distance = (one.mean - value) if bar.is_floor else (value - one.mean)
    would = "" if one.proposed is None else f"; {one.proposed:g} would do"
    if distance < 0 or distance < CHANCE * one.deviation:
        return f"a good engine fails by chance{would}"
    if bar.kind is Kind.DISTANCE:
        return None
    if bar.kind is Kind.CASES:
        if one.proposed is not None and value > one.proposed and distance <= 0:
            return f"not one case may be lost, which {one.n} runs cannot promise{would}"
        caught, could = one.catches_now or 0.0, one.catches or 1.0
        # Where so few cases can show no less, no other bar would be better.
        if one.bar == value and caught >= CATASTROPHE > could:
            return (
                f"only the loss of {one.catches_now:.0%} of the cases fails; {one.proposed:g} "
                f"catches {one.catches:.0%}"
            )
        return None
    if distance == 0:
        return f"a good engine fails by chance{would}"
    if distance > NEVER * one.deviation:
        return (
            f"more than {NEVER:g} deviations away, only a catastrophe fails; {one.proposed:g} "
            f"catches {one.catches:.0%}"
        )
    return None
