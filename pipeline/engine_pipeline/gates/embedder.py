"""Asks the embedding model of a gate how near an answer comes to its references.

Whatever goes wrong with the model is no fault of the engine: the check is errored, never failed.
"""

from __future__ import annotations

import asyncio
import unicodedata
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from engine_pipeline.gates.embedding_model import EmbeddingsUsed, HostedEmbeddings
from engine_pipeline.gates.json_post import NotAnswered, post_json
from engine_pipeline.gates.reply import one_line
from engine_pipeline.gates.similarity import NoEmbedding, Similarity, read_embedding, similarity
from engine_pipeline.redact import masked, redact
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import aiohttp

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedding_model import EmbeddingModel, Pooling

_PATH = "/v1/embeddings"
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPlace:
    """Where embeddings come from on this machine.

    Attributes:
        serve: an endpoint that answers while the block lasts; raises EngineCIError.
        pooling: as it is served; None if somebody else decides.
        runtime: what serves it; None if somebody else does.
    """

    serve: Callable[[], AbstractContextManager[Endpoint]]
    pooling: Pooling | None = None
    runtime: str | None = None


class Embedder:
    """One embedding model, asked for one text at a time; an async context manager.

    Args:
        model: who it is, as the policy says.
        place: where it is. One that cannot be had does not raise: every check says why.
    """

    def __init__(self, model: EmbeddingModel, place: EmbeddingPlace) -> None:
        self._model = model
        self._place = place
        self._stack = AsyncExitStack()
        self._endpoint: Endpoint | None = None
        self._session: aiohttp.ClientSession | None = None
        self._trouble = "the embedding model is not open"
        self._turn = asyncio.Lock()
        self._known: dict[str, tuple[float, ...]] = {}
        self._named: set[str] = set()
        self._dimension: int | None = None
        self._asked = self._unanswered = 0

    async def __aenter__(self) -> Self:
        import aiohttp

        try:
            # Nothing else is going on in this loop while a file is loaded.
            self._endpoint = self._stack.enter_context(self._place.serve())
        except EngineCIError as error:
            self._trouble = f"there is no embedding model: {one_line(error.message)}"
            return self
        key = self._endpoint.api_key
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True),
                timeout=aiohttp.ClientTimeout(total=self._model.timeout_s),
                headers={} if key is None else {"Authorization": f"Bearer {key}"},
            )
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session = self._endpoint = None
        await self._stack.aclose()

    async def compare(
        self, answer: str, references: Sequence[str], at_least: float
    ) -> tuple[bool | None, str, Similarity | None]:
        """Whether an answer is near enough to the nearest of its references, why, and how near.

        None: it could not be told.
        """
        if not answer.strip():
            return False, f"want a text near {_excerpt(references[0])}, got none", None
        try:
            for text in references:
                if text not in self._known:
                    self._known[text] = await self._embedding(text, "the reference")
            said = self._known.get(answer) or await self._embedding(answer, "the answer")
            near = [(similarity(said, self._known[text]), text) for text in references]
        except NoEmbedding as error:
            return None, str(error), None
        value, nearest = max(near, key=lambda one: one[0])
        found = Similarity(value=value, at_least=at_least)
        reason = f"similarity {value:.4f} to {_excerpt(nearest)}, want at least {at_least:g}"
        if not found.reached:
            reason = f"{reason}, got {_excerpt(answer)}"
        return found.reached, reason, found

    async def _embedding(self, text: str, what: str) -> tuple[float, ...]:
        if self._session is None or self._endpoint is None:
            raise NoEmbedding(self._trouble)
        prefixed = self._model.prefix + unicodedata.normalize("NFC", text)
        body = {"model": self._endpoint.model, "input": prefixed}
        key = self._endpoint.api_key
        async with self._turn:
            self._asked += 1
            try:
                found = await post_json(
                    self._session,
                    self._endpoint.base_url,
                    _PATH,
                    body,
                    timeout_s=self._model.timeout_s,
                    secret=key,
                )
                vector = read_embedding(found)
            except NotAnswered as error:
                self._unanswered += 1
                raise NoEmbedding(self._refusal(error, what, len(text))) from error
            except NoEmbedding as error:
                self._unanswered += 1
                # It quotes what is no number.
                msg = masked(f"the embedding of {what}: {error}", key)
                raise NoEmbedding(msg) from error
        if isinstance(name := found.get("model"), str):
            self._named.add(masked(one_line(name)[:200], key))
        if self._dimension not in {None, len(vector)}:
            self._unanswered += 1
            msg = (
                f"the embedding of {what} has {len(vector)} numbers, those before it had "
                f"{self._dimension}: another model answers now"
            )
            raise NoEmbedding(msg)
        self._dimension = len(vector)
        return vector

    def _refusal(self, error: NotAnswered, what: str, chars: int) -> str:
        key = None if self._endpoint is None else self._endpoint.api_key
        detail = redact(error.detail, key)
        if error.refused is not None and error.engine_fault:
            # Most often it is too long; how servers say so differs, so their own words follow.
            return f"the embedding model does not take {what}, {chars} characters: {detail}"
        return f"the embedding model does not answer: {detail}"

    def used(self) -> EmbeddingsUsed:
        """For the report."""
        counts = {"asked": self._asked, "unanswered": self._unanswered}
        model = self._model
        if isinstance(model, HostedEmbeddings):
            return EmbeddingsUsed(
                model=model.model,
                endpoint=redact(model.endpoint),
                named_itself=tuple(sorted(self._named)),
                dimension=self._dimension,
                **counts,
            )
        return EmbeddingsUsed(
            model=model.file.rpartition("/")[2],
            digest=model.digest,
            pooling=self._place.pooling,
            runtime=self._place.runtime,
            dimension=self._dimension,
            **counts,
        )


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…")
