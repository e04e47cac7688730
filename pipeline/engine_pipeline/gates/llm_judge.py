"""Asks the judge of a gate about answers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from engine_pipeline.gates.chat import Message
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.judge_model import (
    PROMPT,
    PROMPT_DIGEST,
    RESPONSE_FORMAT,
    JudgeUsed,
    Vote,
    question_for,
    read_vote,
)
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.suite import Sampling
from engine_pipeline.redact import redact

if TYPE_CHECKING:
    from types import TracebackType

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.judge_model import JudgeModel

# The server knows the request and does not take a field of it.
_REFUSED = frozenset({400, 404, 415, 422, 501})


class LlmJudge:
    """One judge; an async context manager, for one event loop.

    Args:
        model: who it is, as the policy says.
        endpoint: where it is.
    """

    def __init__(self, model: JudgeModel, endpoint: Endpoint) -> None:
        self._model = model
        self._endpoint = endpoint
        self._client: ChatClient | None = None
        self._stack = AsyncExitStack()
        self._extra: dict[str, Any] = {"response_format": RESPONSE_FORMAT}
        self._named: set[str] = set()
        self._asked = self._unanswered = 0

    async def __aenter__(self) -> Self:
        client = ChatClient(self._endpoint, timeout_s=self._model.timeout_s)
        self._client = await self._stack.enter_async_context(client)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        self._client = None

    async def votes(
        self, conversation: list[dict[str, Any]] | str, answer: str, question: str, count: int
    ) -> list[Vote]:
        """So many verdicts on one answer; a request without a verdict is a vote for nothing."""
        messages = (
            Message(role="system", content=PROMPT),
            Message(role="user", content=question_for(conversation, answer, question)),
        )
        return [await self._vote(messages, number) for number in range(count)]

    async def _vote(self, messages: tuple[Message, ...], number: int) -> Vote:
        if self._client is None:
            msg = "the judge is used outside its `async with`"
            raise RuntimeError(msg)
        # Temperature 0 would give every vote the same words.
        sampling = Sampling(
            temperature=0.0 if number == 0 else 0.7,
            top_p=1.0,
            seed=self._model.seed + number,
            max_tokens=self._model.max_tokens,
        )
        self._asked += 1
        reply = await self._client.ask(messages, sampling, self._extra)
        error = reply.error
        if error and error.kind is ErrorKind.HTTP and error.status in _REFUSED and self._extra:
            # Not every server takes a schema; the prompt asks for the same.
            self._extra = {}
            reply = await self._client.ask(messages, sampling, self._extra)
            error = reply.error
        if reply.model is not None:
            self._named.add(reply.model)
        if error is not None:
            self._unanswered += 1
            detail = redact(error.detail, self._endpoint.api_key)
            return Vote(yes=None, reason=f"the judge does not answer: {error.name}: {detail}")
        vote = read_vote(reply.text)
        self._unanswered += vote.yes is None
        return vote

    def used(self) -> JudgeUsed:
        """For the report."""
        return JudgeUsed(
            endpoint=redact(self._model.endpoint),
            model=self._model.model,
            prompt=PROMPT,
            prompt_digest=PROMPT_DIGEST,
            named_itself=tuple(sorted(self._named)),
            asked=self._asked,
            unanswered=self._unanswered,
        )
