"""The model that checks of kind `similar` ask, as policies and reports name it. Pure.

Two ways lead to one: an endpoint that somebody else runs, or a GGUF file that a gate serves itself
while it asks golden prompts. Numbers of one model say nothing of another's, so the model, its
pooling and the prefix are part of the gate's policy and of its digest, and so are bars.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from engine_pipeline.gates.judge_model import Url, Variable
from engine_registry.digest import Digest
from engine_registry.documents import Value

# How the vectors of a text's tokens become one.
Pooling = Literal["mean", "cls", "last"]
Timeout = Annotated[float, Field(gt=0, le=3600)]
Prefix = Annotated[str, Field(max_length=200)]
_LOCAL = frozenset({"file", "digest", "pooling", "max_tokens"})


class HostedEmbeddings(Value):
    """An OpenAI-compatible server with `/v1/embeddings`.

    Attributes:
        endpoint: with or without the final `/v1`.
        model: what it calls the model.
        api_key_env: the environment variable that holds its key.
        timeout_s: longest wait for one embedding.
        prefix: put before every text, as some models were trained to see it, e.g. `query: `.
    """

    endpoint: Url
    model: Annotated[str, Field(min_length=1, max_length=200)]
    api_key_env: Variable | None = None
    timeout_s: Timeout = 60.0
    prefix: Prefix = ""


class LocalEmbeddings(Value):
    """A GGUF file that the gate serves with llama.cpp, in a process of its own.

    Attributes:
        file: seen from the folder of `channels.yaml`.
        digest: of the file; another one is refused.
        pooling: None: as the file says; one that says nothing is refused.
        max_tokens: of the longest text; memory is kept for it.
        timeout_s: longest wait for one embedding.
        prefix: put before every text, as some models were trained to see it.
    """

    file: Annotated[str, Field(min_length=1, max_length=300)]
    digest: Digest
    pooling: Pooling | None = None
    max_tokens: Annotated[int, Field(ge=64, le=32_768)] = 2048
    timeout_s: Timeout = 60.0
    prefix: Prefix = ""


def _kind(entry: Any) -> str:
    keys = entry if isinstance(entry, dict) else getattr(entry, "__dict__", ())
    return "of-a-file" if _LOCAL & set(keys) else "at-an-endpoint"


EmbeddingModel = Annotated[
    Annotated[HostedEmbeddings, Tag("at-an-endpoint")]
    | Annotated[LocalEmbeddings, Tag("of-a-file")],
    Discriminator(_kind),
]


class EmbeddingsUsed(Value):
    """The embedding model of a report.

    Attributes:
        model: as it was asked for; of a file its name.
        endpoint: where it was; None: the gate served the file itself.
        digest: of the file; None: an endpoint does not say what it runs.
        pooling: None: the endpoint's own affair.
        runtime: what served the file.
        named_itself: what an endpoint's answers call the model.
        dimension: numbers of each embedding; None if none came.
        asked: texts that were put to it; `unanswered` of them have no embedding.
    """

    model: str
    endpoint: str | None = None
    digest: Digest | None = None
    pooling: Pooling | None = None
    runtime: str | None = None
    named_itself: tuple[str, ...] = ()
    dimension: Annotated[int | None, Field(ge=1)] = None
    asked: Annotated[int, Field(ge=0)] = 0
    unanswered: Annotated[int, Field(ge=0)] = 0
