"""What a reader must know before believing a bake-off's numbers, in sentences. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.facts import disturbance
from engine_pipeline.bakeoff.words import listed
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.bakeoff.measured import Measured, Unmeasured

# Samples that give p95 an upper bound at 95 %: 0.95^59 < 0.05.
_FOR_P95 = 59
# Of all prompt tokens: by how much more came from a cache than whoever had least.
_CACHED = 0.02
_LONG = timedelta(hours=6)
_MOST_OVERHEAD = 0.05


def caveats(
    file: BakeoffFile, found: Mapping[str, Measured], unmeasured: Mapping[str, Unmeasured]
) -> tuple[str, ...]:
    """What a reader must know before believing the numbers."""
    return tuple(
        [
            *_disturbed(found),
            *_identities(found),
            *_manners(found),
            *_lengths(found),
            *_lanes(found),
            *_caches(found),
            *_machines(found),
            *_evidence(file, found),
            *_absent(unmeasured if found else {}),
        ]
    )


def _disturbed(found: Mapping[str, Measured]) -> Iterable[str]:
    said: dict[str, list[str]] = {}
    for name, measured in found.items():
        if (why := disturbance(measured)) is not None:
            said.setdefault(why, []).append(name)
    for why, names in said.items():
        yield (
            f"while {listed(names)} was measured, {why}: no time of it decides, and no cost by the "
            "hour; run it with --again on a quiet machine"
        )


def _identities(found: Mapping[str, Measured]) -> Iterable[str]:
    for what, field in (("model revision", "model_revision"), ("chat template", "chat_template")):
        values: dict[str, list[str]] = {}
        for name, measured in found.items():
            values.setdefault(getattr(measured.identity, field), []).append(name)
        if len(values) > 1:
            sides = "; ".join(f"{listed(names)}: {value}" for value, names in values.items())
            yield f"not the same {what}, so more than the engines differ: {sides}"
    stated = [name for name, measured in found.items() if not measured.identity.verified]
    if stated:
        yield (
            f"model revision and chat template of {listed(stated)} are what the file states; "
            "whoever runs an endpoint can change both, and nobody else can check"
        )


def _manners(found: Mapping[str, Measured]) -> Iterable[str]:
    for name, measured in found.items():
        by = measured.served_by
        if by is None or not (by.dropped or by.renamed):
            continue
        drawn = [
            f"{suite.name} for {', '.join(suite.drawn_by_default)}"
            for suite in measured.suites
            if suite.drawn_by_default
        ]
        so = (
            f"; asked by {listed(drawn)}, it draws by its own default, so another run may answer "
            "otherwise"
            if drawn
            else ""
        )
        yield f"{name} was asked in its own way: it {by.differences}{so}"


def _lengths(found: Mapping[str, Measured]) -> Iterable[str]:
    def ends_early(measured: Measured) -> bool:
        steps = all(step.ignores_eos for step in measured.steps)
        return not (steps and all(lane.ignores_eos for lane in measured.lanes))

    names = _where(found, ends_early)
    if names:
        yield (
            f"answers of {listed(names)} end where the model ends them, so throughput and cost are "
            "of answers of other lengths than asked for"
        )


def _lanes(found: Mapping[str, Measured]) -> Iterable[str]:
    names = _where(found, lambda m: not all(lane.lengths_known for lane in m.lanes))
    if names:
        yield (
            f"{listed(names)} counts no tokens, so prompts of lanes have as many words as they "
            "should have tokens"
        )


def _caches(found: Mapping[str, Measured]) -> Iterable[str]:
    # Every cache keeps the chat template's own words; that alone makes nobody look better.
    shares = {
        name: max((step.cached_share or 0.0 for step in measured.steps), default=0.0)
        for name, measured in found.items()
    }
    names = [name for name, share in shares.items() if share > min(shares.values()) + _CACHED]
    if names:
        yield (
            f"{listed(names)} took prompt tokens from a cache that others did not, which makes its "
            "TTFT look better"
        )


def _machines(found: Mapping[str, Measured]) -> Iterable[str]:
    away = _where(found, lambda m: m.device is None)
    if away and len(away) < len(found):
        yield (
            f"{listed(away)} ran on a machine that is not known, across a network; the others on "
            "this one"
        )
    times = [(m.started_at, m.finished_at) for m in found.values()]
    if times and (span := max(end for _, end in times) - min(start for start, _ in times)) > _LONG:
        yield (
            f"the first measurement is {span.total_seconds() / 3600:.0f} h older than the last: "
            "what a machine or a network did in between looks like a difference; --again measures "
            "all of them anew"
        )
    hosts = {m.device.host_class for m in found.values() if m.device is not None}
    if len(hosts) > 1:
        yield f"not all engines were measured on one class of host: {', '.join(sorted(hosts))}"


def _evidence(file: BakeoffFile, found: Mapping[str, Measured]) -> Iterable[str]:
    bars = (file.limits.max_ttft_p95_ms, file.limits.max_tpot_p95_ms)
    if file.load.requests < _FOR_P95 and any(bar is not None for bar in bars):
        yield (
            f"{file.load.requests} requests at a step give p95 no upper bound, {_FOR_P95} do; a "
            "limit on it counts as met if every request stays below half of it"
        )
    for name, measured in found.items():
        overhead = measured.overhead.ttft_p95_ms
        least = min(step.metrics["ttft_p95_ms"].estimate.value for step in measured.steps)
        if overhead > _MOST_OVERHEAD * least:
            yield (
                f"the measuring client itself may add {overhead:.2g} ms of {name}'s TTFT p95 of "
                f"{least:.3g} ms; measure from a machine with more to spare"
            )
    lost = _where(found, lambda m: m.unreached > 0)
    if lost:
        yield f"some requests never reached {listed(lost)}; run it again before deciding"


def _absent(unmeasured: Mapping[str, Unmeasured]) -> Iterable[str]:
    for name, one in unmeasured.items():
        if one.outcome is not Outcome.FAILED:
            yield f"{name} may be better than all of these: it could not be judged"


def _where(found: Mapping[str, Measured], is_so: Callable[[Measured], bool]) -> Sequence[str]:
    return [name for name, measured in found.items() if is_so(measured)]
