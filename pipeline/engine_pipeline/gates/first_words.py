"""A few prompts right after load, with log probabilities: are they numbers at all?

An engine with broken weights or scales gives logits that are not finite. What comes out may still
be text, so the numbers are looked at: a log probability that is NaN, infinite or null (what most
JSON writers make of the two) fails. An endpoint that gives none is told of, not failed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.asking import COMPLETION, request_of
from engine_pipeline.gates.json_post import NotAnswered, post_json
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.suite import Case, Suite

LOGPROBS = "finite log probabilities"
_PROMPTS = 4
_TOKENS = 16
# Few are enough to see NaN, and every server that gives any gives so many.
_TOP = 2
_REASON_CHARS = 2000
_NAMED = 3


async def look_at_first_words(endpoint: Endpoint, suite: Suite, *, timeout_s: float) -> Finding:
    """Whether the log probabilities of some short greedy answers are finite.

    Args:
        endpoint: of a server that is ready.
        suite: where the prompts come from.
        timeout_s: longest wait for one answer.
    """
    import aiohttp

    key = endpoint.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    numbers, wrong, troubles = 0, [], []
    async with aiohttp.ClientSession(
        # As `http_stream` does it: a connection for each request.
        connector=aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers=headers,
    ) as session:
        for case in _some(suite.cases):
            path, body = _request(endpoint, suite, case)
            try:
                found = await post_json(
                    session, endpoint.base_url, path, body, timeout_s=timeout_s, secret=key
                )
                read = list(logprobs_of(found))
            except NotAnswered as error:
                troubles.append(f"no answer with log probabilities to {case.id}: {error.detail}")
                if error.refused is None:
                    break  # why nobody answers, the golden prompts will tell
                continue
            except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
                troubles.append(f"{case.id}: not the log probabilities of this API: {error!r}")
                continue
            numbers += len(read)
            wrong += [(case.id, token, number) for token, number in read if not _is_finite(number)]
    if wrong:
        return _finding(Outcome.FAILED, _said(wrong, numbers))
    if not numbers:
        why = "; ".join(troubles) or "the endpoint gives no log probabilities"
        return _finding(Outcome.SKIPPED, f"not looked at: {why}")
    told = "".join(f"; {trouble}" for trouble in troubles)
    return _finding(Outcome.PASSED, f"all {numbers} of the first words are finite numbers{told}")


def logprobs_of(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every token of an answer and of its alternatives, each with what stands for its logprob.

    Raises:
        KeyError, IndexError, TypeError, AttributeError, ValueError: not the shape of this API.
    """
    logprobs = found["choices"][0].get("logprobs")
    if not logprobs:
        return
    content = logprobs.get("content")
    if content is not None:
        for entry in content:
            for one in (entry, *(entry.get("top_logprobs") or ())):
                yield str(one["token"]), one["logprob"]
        return
    tokens = logprobs.get("tokens") or ()
    yield from zip(map(str, tokens), logprobs["token_logprobs"], strict=True)
    for top in logprobs.get("top_logprobs") or ():
        yield from (top or {}).items()


def _some(cases: Sequence[Case]) -> Sequence[Case]:
    """A few from all over the suite; a grammar forbids tokens, which says nothing of weights."""
    plain = [case for case in cases if not case.tools and case.response_format is None]
    pool = plain or cases
    return pool[:: -(-len(pool) // _PROMPTS)]


def _request(endpoint: Endpoint, suite: Suite, case: Case) -> tuple[str, dict[str, Any]]:
    path, asked = request_of(case)
    sampling = suite.sampling_of(case)
    few = {"temperature": 0.0, "max_tokens": min(sampling.max_tokens, _TOKENS)}
    wanted: dict[str, Any] = {"logprobs": True, "top_logprobs": _TOP}
    body = {
        "model": endpoint.model,
        **asked,
        **sampling.model_copy(update=few).model_dump(mode="json"),
        "stream": False,
        **endpoint.extra,
        **({"logprobs": _TOP} if path == COMPLETION else wanted),
    }
    return path, endpoint.dialect.spoken(body)


def _is_finite(number: Any) -> bool:
    # `true` is an int to Python, and no number to anybody else.
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and math.isfinite(number)


def _said(wrong: Sequence[tuple[str, str, Any]], numbers: int) -> str:
    shown = ", ".join(f"{number} for {token!r} in {case}" for case, token, number in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return (
        f"{len(wrong)} of {numbers} are not finite numbers: {shown}{more}; look for a scale, a "
        "precision or a kernel that overflows"
    )


def _finding(outcome: Outcome, reason: str) -> Finding:
    return Finding(name=LOGPROBS, outcome=outcome, reason=reason[:_REASON_CHARS])
