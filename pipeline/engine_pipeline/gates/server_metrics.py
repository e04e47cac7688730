"""What a server counts itself: time in its queue and prompt tokens from its cache. Reading is pure.

Read from its Prometheus page before and after a load, so that only the load counts. Servers know
different things under different names; what one does not tell is not measured, and never 0.

    server       queue time                            cached prompt tokens
    vLLM         vllm:request_queue_time_seconds       vllm:prefix_cache_hits_total, _queries_total
    SGLang       sglang:queue_time_seconds             sglang:cached_tokens_total
    TensorRT-LLM trtllm_request_queue_time_seconds     in the usage only
    llama.cpp    does not tell                         llamacpp:prompt_tokens_cached_total
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.gates.client import ChatClient

# trtllm-serve has its Prometheus page elsewhere: reading its `/metrics` empties a list of its own.
PATHS = ("/prometheus/metrics", "/metrics")
_QUEUES = (
    "vllm:request_queue_time_seconds",
    "sglang:queue_time_seconds",
    "trtllm_request_queue_time_seconds",
)
# Counters of cached prompt tokens, and those that add up to all prompt tokens.
_CACHES = (
    ("vllm:prefix_cache_hits_total", ("vllm:prefix_cache_queries_total",)),
    ("sglang:cached_tokens_total", ("sglang:prompt_tokens_total",)),
    (
        "llamacpp:prompt_tokens_cached_total",
        ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounts:
    """What a server says of one load; None: it does not tell.

    Attributes:
        queue_ms_mean: mean time a request waited in the server.
        queued: of how many requests.
        cached_share: share of the prompt tokens that its cache had.
    """

    queue_ms_mean: float | None = None
    queued: int = 0
    cached_share: float | None = None


async def read_counters(client: ChatClient) -> dict[str, float]:
    """The counters of the server's Prometheus page by name, labels added up; empty without one."""
    for path in PATHS:
        if counters := counters_in(await client.page(path)):
            return counters
    return {}


def counters_in(text: str) -> dict[str, float]:
    """The values on a Prometheus page by name, those of one name added up."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        head, _, tail = line.strip().partition("}") if "{" in line else line.partition(" ")
        name = head.split("{", 1)[0].strip()
        if not name or name.startswith("#"):
            continue
        try:
            value = float(tail.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value):
            found[name] += value
    return dict(found)


def counts_between(before: Mapping[str, float], after: Mapping[str, float]) -> ServerCounts:
    """What happened between two readings."""

    def grown(name: str) -> float | None:
        return after[name] - before.get(name, 0.0) if name in after else None

    queue_ms, queued, cached = None, 0, None
    for name in _QUEUES:
        total, number = grown(f"{name}_sum"), grown(f"{name}_count")
        if total is not None and number:
            queue_ms, queued = total * 1000 / number, round(number)
    for hits, parts in _CACHES:
        hit, all_of = grown(hits), [grown(part) for part in parts]
        if hit is not None and (prompt := math.fsum(part or 0.0 for part in all_of)) > 0:
            cached = hit / prompt
    return ServerCounts(queue_ms_mean=queue_ms, queued=queued, cached_share=cached)
