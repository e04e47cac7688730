"""Golden prompts answered under load, beside the same answered before, as reports have it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_pipeline.gates.case_result import CaseResult, Count
from engine_pipeline.gates.outcome import Outcome
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_CASES = 20
_SHOWN_CHARS = 160


class Different(Value):
    """A case whose answers were others under load.

    Attributes:
        before: outcome of the first pass.
        said_before: the first answer of that pass that was another one under load.
        said: what was said instead.
    """

    id: Slug
    before: Outcome
    outcome: Outcome
    said_before: str
    said: str


class UnderLoadResult(Value):
    """The second pass.

    Attributes:
        concurrency: how many requests were to be in flight.
        before: how many were in flight in the first pass.
        most_in_flight: how many there were at most.
        fillers: requests that only kept the number up, while the last cases were answered.
        cases: as judged under load.
        compared: cases that were answered in both passes and count.
        different: those of them whose answers differ.
    """

    concurrency: Count
    before: Count
    most_in_flight: Count
    fillers: Count
    cases: Annotated[tuple[CaseResult, ...], Field(min_length=1)]
    compared: Count
    different: tuple[Different, ...] = ()

    @property
    def same(self) -> int:
        """Cases that were answered alike."""
        return self.compared - len(self.different)


def different_answers(
    before: Sequence[CaseResult], under_load: Sequence[CaseResult]
) -> tuple[int, tuple[Different, ...]]:
    """How many cases can be compared, and those that were answered otherwise.

    Attempts are compared one by one, since each has a seed of its own. Cases in quarantine are left
    out, as everywhere.
    """
    first = {case.id: case for case in before}
    compared, different = 0, []
    for case in under_load:
        if not case.counts:
            continue
        pairs = [
            (one, other)
            for one, other in zip(first[case.id].attempts, case.attempts, strict=True)
            if one.error is None and other.error is None
        ]
        compared += bool(pairs)
        for one, other in pairs:
            if (one.said, one.text_chars) != (other.said, other.text_chars):
                different.append(
                    Different(
                        id=case.id,
                        before=first[case.id].outcome,
                        outcome=case.outcome,
                        said_before=one.said,
                        said=other.said,
                    )
                )
                break
    return compared, tuple(different)


def under_load_facts(result: UnderLoadResult | None) -> list[str]:
    """What a report says of the second pass; nothing if there was none."""
    if result is None:
        return []
    passed = sum(case.outcome is Outcome.PASSED for case in result.cases)
    facts = [
        f"{passed} of {len(result.cases)} cases passed with {result.most_in_flight} requests in "
        f"flight; asked again after a pass with {result.before}, "
        f"{result.fillers} further requests kept the number up",
        f"{result.same} of {result.compared} cases were answered with the same words in both",
    ]
    worst_first = sorted(result.different, key=lambda one: one.outcome is not Outcome.FAILED)
    facts += [
        f"{one.id}, {one.before} before, {one.outcome} under load: "
        f"“{_parting(one.said_before, one.said)}” became “{_parting(one.said, one.said_before)}”"
        for one in worst_first[:_SHOWN_CASES]
    ]
    left = len(result.different) - _SHOWN_CASES
    return facts + ([f"and {left} more, see report.json"] if left > 0 else [])


def _parting(text: str, other: str) -> str:
    """As much of `text` as shows where it parts from `other`."""
    at = next(
        (place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b),
        min(len(text), len(other)),
    )
    start = max(at - _SHOWN_CHARS // 2, 0)
    shown = text[start : start + _SHOWN_CHARS]
    return ("…" if start else "") + shown + ("…" if len(text) > start + _SHOWN_CHARS else "")
