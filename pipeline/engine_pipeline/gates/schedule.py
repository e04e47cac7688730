"""From a workload to the very requests that are sent: text, length and time of each. Pure.

The same workload gives the same requests on every machine and in every run, so that two engines
are compared on equal work. No two prompts of a run are equal; beyond a shared prefix they differ
within a few tokens, so a prefix cache helps exactly as far as the workload says. A prompt word is
one token in vocabularies of 49 thousand entries and more (SmolLM2: 812 tokens for 800 words); what
was really sent is told by the server's usage.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.gates.arrival import arrivals
from engine_pipeline.gates.prompts import prompt
from engine_pipeline.gates.suite import Message
from engine_pipeline.gates.workload import (
    FixedConcurrency,
    FixedLengths,
    SampledLengths,
    SpreadLengths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.gates.workload import Spread, Workload

# Indices of one step and seed never meet those of another one.
_APART = 1_000_000
_Z95 = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request to come.

    Attributes:
        index: tells requests of a run apart; negative ones are for warming up.
        at_s: seconds after the start at which it is due; None: as soon as another one ends.
        output_tokens: how long the answer is to be.
        has_prefix: it begins with a shared prefix.
    """

    index: int
    at_s: float | None
    messages: tuple[Message, ...]
    output_tokens: int
    has_prefix: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One step of a workload.

    Attributes:
        name: of the step, as reports show it: `concurrency 8`, `2 per s`.
        concurrency: how many are in flight; None for an open load.
    """

    name: str
    concurrency: int | None
    duration_s: float | None
    planned: tuple[Planned, ...]


def levels(workload: Workload) -> tuple[Level, ...]:
    """The steps of a workload, in order."""
    arrival = workload.arrival
    if isinstance(arrival, FixedConcurrency):
        return tuple(
            _level(workload, number, f"concurrency {step}", step)
            for number, step in enumerate(arrival.steps)
        )
    if arrival.kind == "poisson":
        return (_level(workload, 0, f"{arrival.rate_per_s:g} per s", None),)
    return (_level(workload, 0, f"{arrival.size} every {arrival.every_s:g} s", None),)


def warmup(workload: Workload) -> tuple[Planned, ...]:
    """What is sent before anything is measured, with prompts of its own.

    Shared prefixes are those of the measured requests: a prefix cache is warm when they come.
    """
    return tuple(_planned(workload, -1, workload.warmup_requests, timed=False))


def _level(workload: Workload, number: int, name: str, concurrency: int | None) -> Level:
    return Level(
        name=name,
        concurrency=concurrency,
        duration_s=workload.duration_s,
        planned=tuple(_planned(workload, number, workload.requests, timed=True)),
    )


def _planned(workload: Workload, step: int, count: int, *, timed: bool) -> Iterator[Planned]:
    draw = random.Random(f"{workload.seed} {step}")
    lengths = _lengths(workload, count, draw)
    prefixes = _prefixes(workload, count, draw)
    times = arrivals(workload.arrival, count, workload.seed) if timed else (None,) * count
    first = (workload.seed * 100 + max(step, 0)) * _APART
    for number, ((prompt_tokens, output_tokens), prefix, at_s) in enumerate(
        zip(lengths, prefixes, times, strict=True)
    ):
        index = first + number if timed else -(first + number + 1)
        yield Planned(
            index=index,
            at_s=at_s,
            messages=_messages(workload, index, prompt_tokens, prefix),
            output_tokens=output_tokens,
            has_prefix=prefix is not None,
        )


def _lengths(workload: Workload, count: int, draw: random.Random) -> list[tuple[int, int]]:
    lengths = workload.lengths
    match lengths:
        case FixedLengths():
            return [(lengths.prompt_tokens, lengths.output_tokens)] * count
        case SpreadLengths():
            prompts = _drawn(lengths.prompt_tokens, 1, count, draw)
            outputs = _drawn(lengths.output_tokens, 2, count, draw)
            return list(zip(prompts, outputs, strict=True))
        case SampledLengths():
            # Every pair is used before one is used again.
            rounds = -(-count // len(lengths.pairs))
            shuffled = [pair for _ in range(rounds) for pair in _shuffled(lengths.pairs, draw)]
            return shuffled[:count]
        case _:
            assert_never(lengths)


def _shuffled(
    pairs: tuple[tuple[int, int], ...], draw: random.Random
) -> tuple[tuple[int, int], ...]:
    return tuple(draw.sample(pairs, len(pairs)))


def _drawn(spread: Spread, least: int, count: int, draw: random.Random) -> list[int]:
    """The middle of each of `count` equal slices of the distribution, shuffled.

    A plain draw of a few dozen would miss the distribution by as much as two engines differ.
    """
    middle = log(spread.median)
    sigma = (log(spread.p95) - middle) / _Z95
    if sigma == 0:
        return [max(spread.median, least)] * count
    slices = [NormalDist(middle, sigma).inv_cdf((n + 0.5) / count) for n in range(count)]
    draw.shuffle(slices)
    return [min(max(round(exp(value)), least), spread.max) for value in slices]


def _prefixes(workload: Workload, count: int, draw: random.Random) -> list[int | None]:
    """Which shared prefix each request begins with, if any; the share is met as near as can be."""
    shared = workload.shared_prefix
    if shared is None:
        return [None] * count
    with_one = round(shared.share * count)
    chosen: list[int | None] = [number % shared.count for number in range(with_one)]
    chosen += [None] * (count - with_one)
    draw.shuffle(chosen)
    return chosen


def _messages(
    workload: Workload, index: int, prompt_tokens: int, prefix: int | None
) -> tuple[Message, ...]:
    own = prompt(index, prompt_tokens)
    if prefix is None or workload.shared_prefix is None:
        return own
    # In the user's message: not every chat template has a system role.
    [shared] = prompt(-_APART * (prefix + 1), workload.shared_prefix.tokens)
    return (Message(role="user", content=f"{shared.content} {own[0].content}"),)
