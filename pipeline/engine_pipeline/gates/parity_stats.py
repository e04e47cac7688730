"""Distances between two distributions that are known by their likeliest tokens, and a paired test.

Pure, standard library only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.gates.parity_answer import Step

_LEAST = 1e-6


def kl(parent: Step, candidate: Step) -> float | None:
    """Kullback-Leibler divergence of candidate from parent, in nats; None if either is unknown.

    Servers tell the likeliest tokens alone. A token that only the parent lists is, for the
    candidate, at most as likely as the last one it lists, and is taken to be as likely; what
    neither tells is one lump on both sides. Both make the number smaller, not larger, than it is.
    """
    if not parent.top or not candidate.top:
        return None
    floor = candidate.top[-1].logprob
    total, p_rest, q_rest = 0.0, 1.0, 1.0
    for one in parent.top:
        p = math.exp(one.logprob)
        known = candidate.logprob_of(one.token)
        q_log = floor if known is None else known
        total += p * (one.logprob - q_log)
        p_rest -= p
        q_rest -= math.exp(q_log)
    p_rest, q_rest = max(p_rest, 0.0), max(q_rest, _LEAST)
    if p_rest > _LEAST:
        total += p_rest * math.log(p_rest / q_rest)
    return max(total, 0.0)


def margin(parent: Step, token: str) -> float | None:
    """How much the parent prefers its own token to `token`, in nats; None if it is not known.

    Of a token that the parent does not list, the least it can be.
    """
    own = parent.logprob_of(parent.token)
    if own is None or len(parent.top) < 2:
        return None
    other = parent.logprob_of(token)
    return own - (parent.top[-1].logprob if other is None else other)


def sign_test(lost: int, gained: int) -> float:
    """The chance of so many losses or more if losses and gains were equally likely; one-sided.

    McNemar's test in its exact form: cases that both sides pass or both fail say nothing.
    """
    n = lost + gained
    return float(sum(math.comb(n, k) for k in range(lost, n + 1)) / 2**n)
