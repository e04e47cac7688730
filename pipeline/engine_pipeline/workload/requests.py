"""The requests of a workload: what each is to be, and the words that it is made of. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from engine_pipeline.gates.prompts import WORDS
from engine_pipeline.workload.arrival import Concurrency
from engine_pipeline.workload.lengths import evenly
from engine_pipeline.workload.model import MAX_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.workload.model import Workload

_RIVER_WORDS = 1 << 16
# A whole number of words that no other prefix is begun at.
_PREFIX_STRIDE = 509


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request.

    Attributes:
        at_s: when it comes, in seconds from the start; None: when there is room.
        prefix: which of the shared prefixes it begins with; None: with none.
        prefix_tokens: how much of the prompt that is.
    """

    index: int
    at_s: float | None
    prompt_tokens: int
    output_tokens: int
    prefix: int | None = None
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokeniser:
    """How many tokens a prompt of so many words becomes, as a server counted some.

    Attributes:
        template_tokens: what the chat template adds.
        tokens_per_word: of the words that prompts are made of.
        is_known: False: the server counts no tokens, and a word is taken for one.
    """

    template_tokens: float = 0.0
    tokens_per_word: float = 1.0
    is_known: bool = False

    def words(self, tokens: int) -> int:
        """How many words make a prompt of `tokens`; at least one."""
        return max(round((tokens - self.template_tokens) / self.tokens_per_word), 1)


def fitted(short: tuple[int, int], long: tuple[int, int]) -> Tokeniser:
    """From two prompts, each its number of words and the tokens that the server counted.

    Where they make no sense, such as a longer prompt of fewer tokens, a word is taken for a token.
    """
    slope = (long[1] - short[1]) / (long[0] - short[0])
    if not 0.2 <= slope <= 20:
        return Tokeniser()
    base = max(short[1] - slope * short[0], 0.0)
    return Tokeniser(template_tokens=base, tokens_per_word=slope, is_known=True)


def planned(workload: Workload, step: int = 0) -> Iterator[Planned]:
    """The requests of one step, in order; those of a closed loop with `duration_s` have no end.

    Every step has other prompts, so that none finds its own in a prefix cache.
    """
    seed = f"{workload.seed}/{step}"
    prompts, outputs = evenly(f"{seed}/prompts"), evenly(f"{seed}/outputs")
    groups = random.Random(f"{seed}/prefixes")
    arrival = workload.arrival
    last = MAX_REQUESTS if workload.requests is None else workload.requests
    times: list[float] | None = None
    if not isinstance(arrival, Concurrency):
        if workload.duration_s is not None:
            last = min(max(round(arrival.rate_per_s * workload.duration_s), 1), MAX_REQUESTS)
        times = arrival.times(f"{seed}/arrivals", last)
    shared = workload.shared_prefix
    for number in range(last):
        tokens = workload.prompt_tokens.at(next(prompts))
        yield Planned(
            index=step * MAX_REQUESTS + number,
            at_s=None if times is None else times[number],
            prompt_tokens=tokens,
            output_tokens=workload.output_tokens.at(next(outputs)),
            prefix=None if shared is None else groups.randrange(shared.prefixes),
            prefix_tokens=0 if shared is None else round(tokens * shared.share),
        )


def text(request: Planned, salt: str, tokeniser: Tokeniser) -> str:
    """The prompt: its part of the shared prefix, then words that no other prompt has.

    Args:
        request: which one.
        salt: of the run; two runs with different ones have no prompt in common, prefixes aside.
        tokeniser: turns tokens into words.
    """
    words = tokeniser.words(request.prompt_tokens)
    shared = ""
    if request.prefix is not None:
        first = min(round(request.prefix_tokens / tokeniser.tokens_per_word), words - 1)
        shared = f"P{request.prefix} {_piece(request.prefix * _PREFIX_STRIDE, first)} "
        words -= first
    # What tells two prompts apart comes first, so that a cache helps no further than the prefix.
    start = random.Random(f"{salt}/{request.index}").randrange(_RIVER_WORDS)
    return f"{shared}{salt}{request.index} {_piece(start, max(words - 3, 0))}".rstrip()


@cache
def _river() -> tuple[str, list[int]]:
    """A long text of common words, and where each word begins."""
    words = random.Random("river").choices(WORDS, k=_RIVER_WORDS)
    starts = list(accumulate((len(word) + 1 for word in words), initial=0))
    return " ".join(words) + " ", starts


def _piece(start: int, words: int) -> str:
    river, starts = _river()
    start %= _RIVER_WORDS
    parts = []
    while words > 0:
        end = min(start + words, _RIVER_WORDS)
        parts.append(river[starts[start] : starts[end]])
        words -= end - start
        start = 0
    return "".join(parts).rstrip()
