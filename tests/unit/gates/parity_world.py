"""Greedy answers made of a few words, for tests of parity."""

from __future__ import annotations

import math

from engine_pipeline.gates.parity_answer import Likely, ParityAnswer, Step


def step(token: str, **others: float) -> Step:
    """A step that takes `token`; `others` are probabilities of others, the rest its own."""
    listed = {token: 1 - sum(others.values()), **others}
    top = [Likely(token=word, logprob=math.log(p), id=len(word)) for word, p in listed.items()]
    ordered = tuple(sorted(top, key=lambda one: -one.logprob))
    return Step(token=token, id=len(token), top=ordered)


def answer(
    *steps: Step, case: str = "one", passed: bool = True, cut: bool = False, text: str | None = None
) -> ParityAnswer:
    """An answer of these steps; its end is among them only if `text` is shorter than they are."""
    return ParityAnswer(
        case=case,
        text="".join(one.token for one in steps) if text is None else text,
        finish_reason="length" if cut else "stop",
        steps=steps,
        passed=passed,
    )


def words(text: str, case: str = "one", passed: bool = True) -> ParityAnswer:
    """An answer of an endpoint that lists no tokens."""
    return ParityAnswer(case=case, text=text, finish_reason="stop", passed=passed)
