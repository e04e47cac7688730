"""Asks a server for tokens: of its greedy answers, of what comes after given ones, of a chat.

What an endpoint cannot do is found by asking: without `logprobs` there are texts alone, without a
way to tokenise a chat nothing can be forced. Both are said, none is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from engine_pipeline.gates.asking import CHAT, COMPLETION, request_of
from engine_pipeline.gates.json_post import NotAnswered, not_this_api, post_json
from engine_pipeline.gates.parity_answer import (
    TOP_TOKENS,
    ParityAnswer,
    Step,
    read_answer,
    read_steps,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import aiohttp

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.suite import Case, Message, Sampling

# The server knows the request and says that it has no such thing.
_CANNOT = frozenset({400, 404, 405, 422, 501})
_FEW_TOKENS = 16
_LOGPROBS = {"logprobs": True, "top_logprobs": TOP_TOKENS}
# `return_token_ids` is vLLM's word; llama.cpp's server gives the numbers unasked.
_MORE: tuple[dict[str, Any], ...] = ({**_LOGPROBS, "return_token_ids": True}, _LOGPROBS, {})
NO_LOGPROBS = "the endpoint gives no logprobs"
NO_TOKENISER = (
    "nothing forced: the endpoint does not tokenise chats (/apply-template with /tokenize, or "
    "/tokenize with messages)"
)
OTHER_PROMPT = (
    "nothing forced: /tokenize gives {found} tokens for a chat of which the usage says {wanted}"
)
NO_IDS = "nothing forced: the parent's answers carry no token ids"
NO_FORCING = "nothing forced: /v1/completions takes no token ids with logprobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a server makes of a chat; None where it does not tell.

    Attributes:
        text: after the chat template.
        ids: after the tokenizer.
    """

    text: str | None
    ids: tuple[int, ...] | None


@dataclass(slots=True, kw_only=True)
class TokenClient:
    """Asks one endpoint, one request at a time; an async context manager.

    Attributes:
        timeout_s: longest wait for one answer.
        not_measured: what the endpoint turned out not to offer, each said once.
    """

    endpoint: Endpoint
    timeout_s: float
    not_measured: list[str] = field(default_factory=list)
    _more: tuple[dict[str, Any], ...] = _MORE
    _session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        key = self.endpoint.api_key
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=self.timeout_s),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def answer(self, case: Case, sampling: Sampling) -> ParityAnswer:
        """The answer to a case at temperature 0, judged by its checks.

        Raises:
            NotAnswered: with why.
        """
        target, asked = request_of(case)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            **asked,
            **sampling.model_dump(mode="json"),
            "temperature": 0.0,
            "stream": False,
            **self.endpoint.extra,
        }
        found = await self._with_most(target, body)
        try:
            answer = read_answer(case, found)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise not_this_api(error) from error
        if not answer.steps and answer.text:
            self._cannot(NO_LOGPROBS)
        return answer

    async def _with_most(self, target: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a case, with as many of the fields in `_MORE` as the server takes.

        One that refuses some either does not know them or cannot answer this case at all.
        """
        if target == COMPLETION:
            # This API counts in one field what the other one has in two.
            return await self._post(target, body | {"logprobs": TOP_TOKENS})
        for tried, fields in enumerate(self._more[:-1]):
            try:
                found = await self._post(target, body | fields)
            except NotAnswered as error:
                if error.refused not in _CANNOT:
                    raise
            else:
                self._more = self._more[tried:]
                return found
        found = await self._post(target, body | self._more[-1])
        self._more = self._more[-1:]
        return found

    async def prompt_ids(self, case: Case, wanted: int | None) -> tuple[int, ...] | None:
        """The tokens that the server makes of a case; None if it does not tell.

        Args:
            case: a chat, or a raw prompt.
            wanted: how many they are by the usage; with another number nothing can be forced.

        Raises:
            NotAnswered: with why.
        """
        if case.prompt is not None:
            ids = await self.ids_of(case.prompt, whole=True)
        else:
            ids = (await self.prompt(case.messages, case.tools)).ids
        if ids is None:
            self._cannot(NO_TOKENISER)
        elif wanted is not None and len(ids) != wanted:
            self._cannot(OTHER_PROMPT.format(found=len(ids), wanted=wanted))
            return None
        return ids

    async def prompt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> Prompt:
        """What the server makes of a chat before the model sees it, as far as it tells.

        Raises:
            NotAnswered: with why.
        """
        chat: dict[str, Any] = {
            "messages": [message.model_dump(mode="json") for message in messages]
        }
        if tools:
            chat["tools"] = list(tools)
        rendered = (await self._try("/apply-template", chat)).get("prompt")
        if isinstance(rendered, str):  # llama.cpp
            return Prompt(text=rendered, ids=await self.ids_of(rendered, whole=True))
        asked = chat | {"model": self.endpoint.model, "add_generation_prompt": True}
        return Prompt(text=None, ids=_ids(await self._try("/tokenize", asked)))  # vLLM

    async def ids_of(self, text: str, *, whole: bool = False) -> tuple[int, ...] | None:
        """The tokens of a text, special ones recognised; None if the server does not tell.

        Args:
            text: what to tokenise.
            whole: it is a whole prompt, so tokens that begin every prompt belong to it.

        Raises:
            NotAnswered: with why.
        """
        body = {
            "content": text,
            "add_special": whole,
            "parse_special": True,
            "model": self.endpoint.model,
            "prompt": text,
            "add_special_tokens": whole,
        }
        return _ids(await self._try("/tokenize", body))

    async def prompt_size(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> int | None:
        """How many tokens a chat is by the usage of an answer of one token; None: not told.

        Raises:
            NotAnswered: with why.
        """
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [message.model_dump(mode="json") for message in messages],
            "max_tokens": 1,
            "temperature": 0.0,
            "stream": False,
            **self.endpoint.extra,
        }
        if tools:
            body["tools"] = list(tools)
        try:
            found = await self._post(CHAT, body)
        except NotAnswered as error:
            if error.refused not in _CANNOT:
                raise
            # Some servers refuse to answer in so few tokens.
            found = await self._post(CHAT, body | {"max_tokens": _FEW_TOKENS})
        usage = found.get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return count if isinstance(count, int) else None

    async def next_step(self, ids: Sequence[int]) -> Step | None:
        """What comes after these tokens, with the likeliest others; None if it is not told.

        Raises:
            NotAnswered: with why.
        """
        body = {
            "model": self.endpoint.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": TOP_TOKENS,
            "stream": False,
        }
        try:
            found = await self._post("/v1/completions", body)
            steps = read_steps(found["choices"][0])
        except NotAnswered as error:
            if error.refused not in _CANNOT:
                raise
            steps = ()
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise not_this_api(error) from error
        if not steps:
            self._cannot(NO_FORCING)
            return None
        return steps[0]

    def _cannot(self, what: str) -> None:
        if what not in self.not_measured:
            self.not_measured.append(what)

    async def _try(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._post(path, body)
        except NotAnswered as error:
            if error.refused is None:
                raise
            return {}

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._session is None:
            msg = "the client is used outside its `async with`"
            raise RuntimeError(msg)
        return await post_json(
            self._session,
            self.endpoint.base_url,
            path,
            self.endpoint.dialect.spoken(body),
            timeout_s=self.timeout_s,
            secret=self.endpoint.api_key,
        )


def _ids(found: dict[str, Any]) -> tuple[int, ...] | None:
    tokens = found.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens):
        return None
    return tuple(tokens) or None
