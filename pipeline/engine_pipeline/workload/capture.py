"""From what a log says of its requests to a workload that is like them. Pure.

Lengths become histograms, times a rate and a size of bursts, and beginnings that come again a
shared prefix. What a line was about is never kept: counts alone.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from engine_pipeline.workload.arrival import MAX_IN_FLIGHT, Arrival, Bursts, Concurrency, Poisson
from engine_pipeline.workload.lengths import Fixed, Histogram, Length
from engine_pipeline.workload.log_line import Seen, read_line
from engine_pipeline.workload.model import Captured, SharedPrefix, Workload
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# As many as a p99 takes to be bounded: ln(0.05) / ln(0.99).
DEFAULT_REQUESTS = 300
_BINS = 32
# A window holds this many requests on average, and is at least a second long, since that is as
# exact as the times of many logs are.
_PER_WINDOW = 20
_LEAST_WINDOWS = 10
# Where counts vary less than this much more than Poisson's, they are Poisson's.
_BURSTY = 1.5
_LEAST_SHARE = 0.02
_MOST_SHARE = 0.95
_MAX_RATE = 1000.0


def capture(
    lines: Iterable[bytes],
    *,
    name: str,
    requests: int = DEFAULT_REQUESTS,
    seed: int = 1,
    source: str = "the log",
) -> Workload:
    """A workload like the log's.

    Args:
        lines: of the log, as they stand in it.
        name: the workload's.
        requests: how many it makes when it is run.
        seed: the workload's.
        source: what errors call the log.

    Raises:
        InvalidInput: no line could be used; says why, by count.
    """
    seen: list[Seen] = []
    skipped: Counter[str] = Counter()
    for line in lines:
        if not line.strip():
            continue
        found = read_line(line)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            seen.append(found)
    if not seen:
        why = ", ".join(f"{count} × {reason}" for reason, count in skipped.most_common())
        raise InvalidInput(
            f"no line of {source} could be used: {why or 'it is empty'}",
            hint="want one JSON object a line, with prompt_tokens and completion_tokens; "
            "docs/speed.md lists the shapes",
            reference="workload-log-unusable",
        )
    notes: list[str] = []
    arrival, span_s, dispersion, window_s = _arrival(seen, notes)
    return Workload(
        name=name,
        prompt_tokens=histogram([one.prompt_tokens for one in seen]),
        output_tokens=histogram([one.output_tokens for one in seen]),
        shared_prefix=_shared(seen, notes),
        arrival=arrival,
        requests=requests,
        seed=seed,
        captured=Captured(
            lines=len(seen),
            skipped=dict(sorted(skipped.items())),
            span_s=None if span_s is None else round(span_s, 3),
            dispersion=None if dispersion is None else round(dispersion, 2),
            window_s=None if window_s is None else round(window_s, 3),
            notes=tuple(notes),
        ),
    )


def histogram(values: Sequence[int]) -> Length:
    """How long they were: value by value where there are few, else in bins that grow alike."""
    counted = Counter(values)
    if len(counted) == 1:
        return Fixed(kind="fixed", tokens=values[0])
    low, high = min(values), max(values) + 1
    if len(counted) <= _BINS // 2:
        edges = sorted({edge for value in counted for edge in (value, value + 1)})
    else:
        steps = (low * (high / low) ** (k / _BINS) for k in range(_BINS + 1))
        edges = sorted({*(round(step) for step in steps), low, high})
    counts = [0] * (len(edges) - 1)
    at = 0
    for value in sorted(counted):
        while value >= edges[at + 1]:
            at += 1
        counts[at] += counted[value]
    return Histogram(kind="histogram", edges=tuple(edges), counts=tuple(counts))


def _arrival(
    seen: Sequence[Seen], notes: list[str]
) -> tuple[Arrival, float | None, float | None, float | None]:
    times = sorted(one.at_s for one in seen if one.at_s is not None)
    span_s = times[-1] - times[0] if times else 0.0
    if len(times) < 2 or span_s <= 0:
        notes.append("the log tells no times: one request at a time is assumed, so say otherwise")
        return Concurrency(kind="concurrency", steps=(1,)), None, None, None
    if len(times) < len(seen):
        notes.append(f"{len(seen) - len(times)} lines tell no time and count for lengths alone")
    rate = (len(times) - 1) / span_s
    if rate > _MAX_RATE:
        notes.append(f"{rate:.0f} requests/s are more than one client makes: {_MAX_RATE:g} are")
        rate = _MAX_RATE
    window_s = max(1.0, _PER_WINDOW / rate)
    windows = math.floor(span_s / window_s)
    if windows < _LEAST_WINDOWS:
        notes.append("too few requests to tell bursts from chance: Poisson is assumed")
        return Poisson(kind="poisson", rate_per_s=_rounded(rate)), span_s, None, None
    dispersion = _dispersion(times, window_s, windows)
    size = min(round(dispersion), MAX_IN_FLIGHT)
    if dispersion < _BURSTY or size < 2:
        arrival: Arrival = Poisson(kind="poisson", rate_per_s=_rounded(rate))
    else:
        arrival = Bursts(kind="bursts", rate_per_s=_rounded(rate), size=size)
    return arrival, span_s, dispersion, window_s


def _dispersion(times: Sequence[float], window_s: float, windows: int) -> float:
    """Variance over mean of the counts of whole windows; for bursts, their size."""
    counts = Counter(int((at - times[0]) / window_s) for at in times)
    held = [counts.get(window, 0) for window in range(windows)]
    mean = sum(held) / windows
    return sum((one - mean) ** 2 for one in held) / (windows - 1) / mean


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")


def _shared(seen: Sequence[Seen], notes: list[str]) -> SharedPrefix | None:
    if any(one.blocks for one in seen):
        return _shared_blocks(seen, notes)
    told = [one for one in seen if one.cached_tokens is not None]
    if not told:
        notes.append("the log does not tell what prompts have in common: nothing is assumed")
        return None
    whole = sum(one.prompt_tokens for one in told)
    share = sum(min(one.cached_tokens or 0, one.prompt_tokens) for one in told) / whole
    notes.append("what prompts share is what the server had cached; how many prefixes is unknown")
    return _prefix(share, 1)


def _shared_blocks(seen: Sequence[Seen], notes: list[str]) -> SharedPrefix | None:
    """The share of all blocks that an endless cache would have had, in the order of the log."""
    known: set[int] = set()
    starts: Counter[int] = Counter()
    again = total = 0
    for one in seen:
        total += len(one.blocks)
        starts.update(one.blocks[:1])
        for block in one.blocks:
            if block not in known:
                break
            again += 1
        known.update(one.blocks)
    prefixes = sum(count > 1 for count in starts.values())
    notes.append("what prompts share is what a cache without end would have had")
    return _prefix(again / total if total else 0.0, prefixes)


def _prefix(share: float, prefixes: int) -> SharedPrefix | None:
    if share < _LEAST_SHARE:
        return None
    held = min(round(share, 3), _MOST_SHARE)
    return SharedPrefix(share=held, prefixes=min(max(prefixes, 1), 1000))
