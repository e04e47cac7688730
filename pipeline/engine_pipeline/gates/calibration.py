"""Where a bar stands in the noise: the same engine measured again and again. Pure.

Stored in the project, beside the suite, so that whoever reads or changes a bar sees how far it is
from what a good engine shows by chance:

    golden_prompts/<suite>/calibration/<host class>.json

A bar within CHANCE deviations of the mean fails good engines by chance; one beyond NEVER is missed
by nothing but a catastrophe, and so says nothing of a slowdown.
"""

from __future__ import annotations

import re
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_pipeline.gates.load import Load
from engine_pipeline.gates.paired_stats import student_t
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.record import Text
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.policy import GatePolicy, PerformanceBars

CHANCE = 2.0
NEVER = 6.0
LEAST_RUNS = 3
# A bar's name in channels.yaml: the metric it is about, and whether more is better there.
BARS = {
    "max_ttft_p95_ms": ("ttft_p95_ms", False),
    "max_tpot_p95_ms": ("tpot_p95_ms", False),
    "min_output_tokens_per_s": ("output_tokens_per_s", True),
}
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class ErrorRates(Value):
    """What a proposed bar is chosen for.

    Attributes:
        false_alarm: how often the engine as it is may miss the bar.
        miss: how often one that is worse by `catches` may meet it.
    """

    false_alarm: Share = 0.01
    miss: Share = 0.05


class BarEvidence(Value):
    """One bar and what was measured.

    Attributes:
        bar: as it stood in channels.yaml; None: there is none for this metric.
        mean, deviation, n: over runs, of the value that the bar is compared with.
        proposed: a bar that keeps the stated error rates.
        catches: the smallest worsening that `proposed` catches, as a share of the mean.
    """

    metric: Text
    bar: float | None
    mean: float
    deviation: Annotated[float, Field(ge=0.0)]
    n: Annotated[int, Field(ge=LEAST_RUNS)]
    proposed: float
    catches: float


class GateCalibration(Value):
    """One gate on one class of hosts.

    Attributes:
        load: under which it was measured; under another one it says nothing.
        dropped: runs that were disturbed and do not count.
    """

    engine: Digest
    at: AwareDatetime
    load: Load
    rates: ErrorRates
    dropped: Annotated[int, Field(ge=0)] = 0
    bars: dict[str, BarEvidence]


class Calibration(Document):
    """All gates of one suite on one class of hosts."""

    host_class: Text
    gates: dict[Slug, GateCalibration]


def file_name(host_class: str) -> str:
    """The name of the file for a class of hosts."""
    return re.sub(r"[^a-z0-9]+", "-", host_class.lower()).strip("-") + ".json"


def load_of(bars: PerformanceBars) -> Load:
    """The load alone, without the bars."""
    return Load.model_validate(bars.model_dump(include=set(Load.model_fields)))


def evidence(
    values: Mapping[str, Sequence[float]], bars: PerformanceBars, rates: ErrorRates
) -> dict[str, BarEvidence]:
    """From the values of each metric, a run each, to what is to be known of each bar."""
    found = {}
    for name, (metric, more_is_better) in BARS.items():
        measured = values.get(metric, ())
        if len(measured) < LEAST_RUNS:
            continue
        mean, deviation, n = fmean(measured), stdev(measured), len(measured)
        # A run to come lies within so much of the mean of n runs (prediction interval, normal).
        spread = deviation * sqrt(1 + 1 / n)
        side = -1 if more_is_better else 1
        proposed = mean + side * student_t(1 - rates.false_alarm, n - 1) * spread
        caught = proposed + side * student_t(1 - rates.miss, n - 1) * spread
        found[name] = BarEvidence(
            metric=metric,
            bar=getattr(bars, name),
            mean=round(mean, 3),
            deviation=round(deviation, 3),
            n=n,
            proposed=round(max(proposed, 0.0), 3),
            catches=round(abs(caught - mean) / mean, 4) if mean else 0.0,
        )
    return found


def warnings(gate: str, policy: GatePolicy, known: GateCalibration) -> list[str]:
    """What is wrong with the bars of a gate as they stand now, given what was measured."""
    bars = policy.performance
    if bars is None:
        return []
    if load_of(bars) != known.load:
        return [
            f"gate {gate}: calibrated under another load; run `enginectl calibrate {gate}` again"
        ]
    found = []
    for name, one in known.bars.items():
        bar = getattr(bars, name, None)
        if bar is None:
            continue
        distance = (one.mean - bar) if BARS[name][1] else (bar - one.mean)
        said = f"gate {gate}: {name} {bar:g}, measured {one.mean:g} ± {one.deviation:g} (n {one.n})"
        if distance < CHANCE * one.deviation or distance <= 0:
            found.append(f"{said}: a good engine fails by chance; {one.proposed:g} would do")
        elif distance > NEVER * one.deviation:
            found.append(
                f"{said}: more than {NEVER:g} deviations away, only a catastrophe fails; "
                f"{one.proposed:g} catches {one.catches:.0%}"
            )
    return found
