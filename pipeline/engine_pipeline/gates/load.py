"""The load that speed is measured under: how many requests, of which size, and when. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine_registry.documents import Value

Concurrency = Annotated[int, Field(ge=1, le=256)]


class Load(Value):
    """How the load is made.

    Attributes:
        requests: how many are measured; a p95 bar needs 59 to be proven at 95 % confidence.
        concurrency: how many are in flight, all the time.
        output_tokens: how many tokens each request asks for, end-of-sequence ignored.
        prompt_words: length of each prompt; no two prompts are equal.
        warmup_requests: sent first and not measured.
    """

    requests: Annotated[int, Field(ge=1, le=100_000)]
    concurrency: Concurrency
    output_tokens: Annotated[int, Field(ge=2, le=8192)]
    prompt_words: Annotated[int, Field(ge=8, le=8192)] = 48
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 2
