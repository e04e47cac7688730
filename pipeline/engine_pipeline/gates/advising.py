"""Who is asked besides the engine while a suite is asked: brought together in one place.

Whatever asks a suite gets its advisers here, so that a gate and a bake-off judge alike.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.consult import Advisers
from engine_pipeline.gates.embedder import Embedder
from engine_pipeline.gates.llm_judge import LlmJudge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import date

    from engine_pipeline.gates.check_code import CheckCode
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.embedding_model import EmbeddingModel
    from engine_pipeline.gates.judge_model import JudgeModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What judging takes besides the answers.

    Attributes:
        judge: where the judge is; None: nobody is asked.
        embeddings: where those of `similar` checks come from; None: from nowhere.
        code: of the suite's `python` checks, by entry point.
        today: of which quarantines are over.
    """

    today: date
    judge: Endpoint | None = None
    embeddings: EmbeddingPlace | None = None
    code: Mapping[str, CheckCode] = field(default_factory=dict)


@asynccontextmanager
async def advisers_of(
    advice: Advice, judge: JudgeModel | None, embeddings: EmbeddingModel | None = None
) -> AsyncIterator[Advisers]:
    """Everybody who can be asked while the block lasts.

    Args:
        advice: what is at hand.
        judge: who judges, as policy or file say; None: nobody.
        embeddings: the model that texts are compared by; None: none is.
    """
    async with AsyncExitStack() as stack:
        asked: LlmJudge | None = None
        if judge is not None and advice.judge is not None:
            asked = await stack.enter_async_context(LlmJudge(judge, advice.judge))
        embedder: Embedder | None = None
        if embeddings is not None and advice.embeddings is not None:
            embedder = Embedder(embeddings, advice.embeddings)
            await stack.enter_async_context(embedder)
        yield Advisers(judge=asked, embedder=embedder, code=advice.code)
