"""A greedy answer, token by token, with what the engine thought of other tokens. Pure.

Read from what OpenAI-compatible servers send: chat completions and completions, with `logprobs` in
the newer shape (a list of tokens under `content`) or the older one (parallel lists). Log
probabilities are natural logarithms of the model's own distribution, before any sampling.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.reply import well_formed
from engine_pipeline.gates.suite import Sampling
from engine_pipeline.gates.tool_call import CallStream
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.suite import Case

# How many tokens are asked for at each position. OpenAI's own limit is 20; the tenth of a small
# model's is seldom above one in a thousand.
TOP_TOKENS = 10
_DECIMALS = 5


class Likely(Value):
    """A token that could have come at a position.

    Attributes:
        token: its text; `<ID>` for a token without text, such as the end of an answer.
        logprob: of the token at that position.
        id: its number in the vocabulary; None if the server does not say.
    """

    token: str
    logprob: Annotated[float, Field(le=0.0, allow_inf_nan=False)]
    id: int | None = None


class Step(Value):
    """One token of an answer.

    Attributes:
        token: what came.
        top: the likeliest tokens there, best first; empty if the server does not say.
    """

    token: str
    id: int | None = None
    top: tuple[Likely, ...] = ()

    def logprob_of(self, token: str) -> float | None:
        """Of a token among `top`; None if it is not there."""
        return next((one.logprob for one in self.top if one.token == token), None)


class ParityAnswer(Value):
    """What an engine says to one case at temperature 0.

    Attributes:
        steps: its tokens, the end-of-answer token included where the server lists it; empty if the
            server gives no log probabilities.
        passed: whether every check of the case holds.
        prompt_tokens: as the usage says.
    """

    case: Slug
    text: str
    finish_reason: str | None
    steps: tuple[Step, ...] = ()
    passed: bool
    prompt_tokens: int | None = None


class ParentAnswers(Document):
    """A parent's answers, as they are stored beside the parent.

    Attributes:
        engine: who answered.
        asked: digest of everything that decides the answers: suite, cases, runtime, device.
        sampling: of the suite; each case's own values over it, temperature 0 over those.
        unanswered: cases that it answers with an error, such as a prompt that is too long.
    """

    engine: Digest
    suite: Digest
    asked: Digest
    sampling: Sampling
    answers: Annotated[tuple[ParityAnswer, ...], Field(min_length=1)]
    unanswered: dict[Slug, str] = {}


def read_answer(case: Case, found: dict[str, Any]) -> ParityAnswer:
    """The answer to a case in one piece, held to the checks that need nobody else.

    Raises:
        ValueError, TypeError, KeyError, IndexError, AttributeError: not the shape of this API.
    """
    choice = found["choices"][0]
    message = choice.get("message") or {"content": choice["text"]}
    stream = CallStream()
    stream.take(message.get("tool_calls") or [])
    calls = stream.calls
    content = well_formed(message.get("content") or "")
    # What it calls is part of what it says.
    text = "\n".join([content, *map(str, calls)]) if calls else content
    finish = choice.get("finish_reason")
    said = Answer(text=content, finish_reason=finish, tool_calls=calls)
    verdicts = judge_all(case.checks, said)
    count = (found.get("usage") or {}).get("prompt_tokens")
    return ParityAnswer(
        case=case.id,
        text=text,
        finish_reason=finish,
        steps=read_steps(choice),
        passed=all(verdict.passed for verdict in verdicts),
        prompt_tokens=count if isinstance(count, int) else None,
    )


def read_steps(choice: dict[str, Any]) -> tuple[Step, ...]:
    """The tokens of one choice of a completion or chat completion; empty if it lists none.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: not the shape of this API.
    """
    logprobs = choice.get("logprobs")
    if not logprobs:
        return ()
    ids = choice.get("token_ids") or ()
    content = logprobs.get("content")
    if content is not None:
        steps = [_new_step(entry) for entry in content]
    else:
        tokens = logprobs.get("tokens") or ()
        tops = logprobs.get("top_logprobs") or [{}] * len(tokens)
        steps = [
            _old_step(token, own, top or {})
            for token, own, top in zip(tokens, logprobs["token_logprobs"], tops, strict=True)
        ]
    if len(ids) == len(steps):
        steps = [
            step if step.id is not None else step.model_copy(update={"id": int(number)})
            for step, number in zip(steps, ids, strict=True)
        ]
    return tuple(steps)


def _new_step(entry: dict[str, Any]) -> Step:
    own = _likely(entry)
    top = [_likely(one) for one in entry.get("top_logprobs") or ()]
    return Step(token=own.token, id=own.id, top=_ordered(own, top))


def _old_step(token: str, own: float, top: dict[str, float]) -> Step:
    mine = Likely(token=well_formed(token), logprob=_logprob(own))
    listed = [
        Likely(token=well_formed(text), logprob=_logprob(value)) for text, value in top.items()
    ]
    return Step(token=mine.token, top=_ordered(mine, listed))


def _ordered(own: Likely, top: list[Likely]) -> tuple[Likely, ...]:
    every = top if any(one.token == own.token for one in top) else [own, *top]
    return tuple(sorted(every, key=lambda one: -one.logprob))


def _likely(entry: dict[str, Any]) -> Likely:
    number = entry.get("id")
    number = number if isinstance(number, int) else None
    raw = entry.get("bytes")
    # Part of a character has no text of its own; its bytes tell two such parts from each other.
    text = bytes(raw).decode(errors="backslashreplace") if raw else str(entry["token"])
    return Likely(
        token=well_formed(text) or f"<{'?' if number is None else number}>",
        logprob=_logprob(entry["logprob"]),
        id=number,
    )


def _logprob(value: float) -> float:
    number = float(value)
    if math.isnan(number):
        msg = "a log probability is not a number"
        raise ValueError(msg)
    # llama.cpp writes the logarithm of 0 as the lowest float; -100 is as good as never.
    return round(min(max(number, -100.0), 0.0), _DECIMALS)
