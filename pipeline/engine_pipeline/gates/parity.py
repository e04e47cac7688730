"""Two engines' greedy answers to the same prompts: where they part, and whether that matters. Pure.

At temperature 0 an answer is a path, and the first other token leads elsewhere: after it, words say
nothing. So three things are looked at.

    divergence   the first token that differs. The parent's margin, its log probability of its own
                 token less that of the candidate's, tells a tie-break from a change of mind.
    positions    where both engines have read the same words: up to and with the divergence by
                 themselves, beyond it because the candidate was given the parent's words (teacher
                 forcing). There, likeliest tokens and whole distributions are compared.
    checks       which cases either side passes: `tag_drops`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.parity_answer import Step
from engine_pipeline.gates.parity_result import (
    Divergence,
    DivergenceKind,
    ParityMeasures,
    TagDrop,
)
from engine_pipeline.gates.parity_stats import kl, margin, sign_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.parity_answer import ParityAnswer

TOKENS, WORDS = "tokens", "words"
# Stands for the end of an answer where the server does not list it.
END = "<end>"
_WORD = re.compile(r"\s*\S+")
_SHOWN_CHARS = 160
_DECIMALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both answers to one case, and what the candidate said when it was given the parent's words.

    Attributes:
        forced: the candidate's step at position k of the parent's answer, by k.
    """

    parent: ParityAnswer
    candidate: ParityAnswer
    forced: Mapping[int, Step]


def path(answer: ParityAnswer, unit: str = TOKENS) -> tuple[Step, ...]:
    """An answer's steps with its end as the last one; an answer that was cut has no end."""
    if unit == WORDS:
        steps = tuple(Step(token=word) for word in _WORD.findall(answer.text))
    else:
        steps = answer.steps
    ended = answer.finish_reason == "stop"
    lists_its_end = unit == TOKENS and "".join(one.token for one in steps) != answer.text
    return (*steps, Step(token=END)) if ended and not lists_its_end else steps


def parting(parent: Sequence[Step], candidate: Sequence[Step]) -> int:
    """How many steps agree before the first that differs."""
    at = 0
    for mine, theirs in zip(candidate, parent, strict=False):
        if mine.token != theirs.token:
            return at
        at += 1
    return at


def to_force(parent: ParityAnswer, candidate: ParityAnswer, limit: int) -> range:
    """The positions of the parent's answer that only forcing reaches, below `limit`."""
    first = parting(path(parent), path(candidate)) + 1
    return range(min(first, limit), min(len(parent.steps), limit))


def compare(
    pairs: Sequence[Pair], near_tie: float, not_measured: Sequence[str] = ()
) -> tuple[ParityMeasures, tuple[Divergence, ...]]:
    """All measures and every divergence, real ones first; `pairs` is not empty.

    Args:
        pairs: the cases that both sides answered.
        near_tie: margin up to which a divergence is a tie-break, in nats.
        not_measured: what is known not to have been measured, and why.
    """
    listed = all(pair.parent.steps and pair.candidate.steps for pair in pairs)
    unit = TOKENS if listed else WORDS
    paths = [(path(pair.parent, unit), path(pair.candidate, unit)) for pair in pairs]
    agreed = [parting(parent, mine) for parent, mine in paths]
    divergences = [
        one
        for pair, (parent, mine), at in zip(pairs, paths, agreed, strict=True)
        if (one := _divergence(pair, parent, mine, at, near_tie)) is not None
    ]
    both = [position for pair in pairs for position in _positions(pair)] if listed else []
    known = [(parent, mine) for parent, mine in both if parent.top and mine.top]
    distances = [found for parent, mine in known if (found := kl(parent, mine)) is not None]
    same = [parent.top[0].token == mine.top[0].token for parent, mine in known]
    kinds = [found.kind for found in divergences]
    shares = [
        at / len(parent) if parent else 1.0 for (parent, _), at in zip(paths, agreed, strict=True)
    ]
    measures = ParityMeasures(
        unit=unit,
        prompts=len(pairs),
        identical=len(pairs) - len(divergences),
        near_ties=kinds.count(DivergenceKind.NEAR_TIE),
        real=kinds.count(DivergenceKind.REAL),
        unknown=kinds.count(DivergenceKind.UNKNOWN),
        prefix_agreement=round(fsum(shares) / len(shares), _DECIMALS),
        positions=len(known),
        forced=sum(len(pair.forced) for pair in pairs) if listed else 0,
        top1_agreement=round(sum(same) / len(same), _DECIMALS) if same else None,
        real_disagreements=sum(
            _kind(margin(parent, mine.top[0].token), near_tie) is DivergenceKind.REAL
            for (parent, mine), agrees in zip(known, same, strict=True)
            if not agrees
        ),
        kl=round(fsum(distances) / len(distances), _DECIMALS) if distances else None,
        kl_p95=round(stats.percentile(distances, 0.95), _DECIMALS) if distances else None,
        not_measured=tuple(not_measured),
    )
    order = (DivergenceKind.REAL, DivergenceKind.UNKNOWN, DivergenceKind.NEAR_TIE)
    return measures, tuple(
        sorted(divergences, key=lambda one: (order.index(one.kind), -(one.margin or 0.0), one.case))
    )


def tag_drops(
    parent: Mapping[str, bool], candidate: Mapping[str, bool], tags: Mapping[str, Sequence[str]]
) -> tuple[TagDrop, ...]:
    """What either side passes, over all cases first, then by tag.

    Args:
        parent: case → whether the parent passed it.
        candidate: the same of the candidate; cases that one side lacks do not count.
        tags: the tags of each case.
    """
    shared = [case for case in parent if case in candidate]
    names = sorted({tag for case in shared for tag in tags[case]})
    groups: list[tuple[str | None, list[str]]] = [(None, shared)]
    groups += [(tag, [case for case in shared if tag in tags[case]]) for tag in names]
    drops = []
    for tag, cases in groups:
        if not cases:
            continue
        lost = sum(parent[case] and not candidate[case] for case in cases)
        gained = sum(candidate[case] and not parent[case] for case in cases)
        drops.append(
            TagDrop(
                tag=tag,
                cases=len(cases),
                parent_passed=sum(parent[case] for case in cases),
                candidate_passed=sum(candidate[case] for case in cases),
                lost=lost,
                gained=gained,
                p=round(sign_test(lost, gained), _DECIMALS),
            )
        )
    return tuple(drops)


def _positions(pair: Pair) -> list[tuple[Step, Step]]:
    """The steps of either side after the same words: parent's, candidate's."""
    parent, mine = path(pair.parent), path(pair.candidate)
    shared = list(zip(parent, mine, strict=False))[: parting(parent, mine) + 1]
    return shared + [(parent[at], step) for at, step in sorted(pair.forced.items())]


def _divergence(
    pair: Pair, parent: Sequence[Step], mine: Sequence[Step], at: int, near_tie: float
) -> Divergence | None:
    if at == len(parent) == len(mine):
        return None
    theirs = parent[at] if at < len(parent) else None
    own = mine[at] if at < len(mine) else None
    gap = None if theirs is None or own is None else margin(theirs, own.token)
    return Divergence(
        case=pair.parent.case,
        kind=_kind(gap, near_tie),
        at=at,
        of=len(parent),
        parent_token=theirs.token if theirs else None,
        candidate_token=own.token if own else None,
        margin=None if gap is None else round(gap, _DECIMALS),
        shared=_words(parent[:at])[-_SHOWN_CHARS:],
        parent_text=_words(parent[at:])[:_SHOWN_CHARS],
        candidate_text=_words(mine[at:])[:_SHOWN_CHARS],
    )


def _kind(gap: float | None, near_tie: float) -> DivergenceKind:
    if gap is None:
        return DivergenceKind.UNKNOWN
    return DivergenceKind.REAL if gap > near_tie else DivergenceKind.NEAR_TIE


def _words(steps: Sequence[Step]) -> str:
    return "".join(step.token for step in steps)
