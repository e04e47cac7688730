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
from collections import defaultdict
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
        queue_s: what requests waited in the server, all added up.
        queued: how many those are.
        cached_tokens: prompt tokens that its cache had, of `prompt_tokens`.
    """

    queue_s: float | None = None
    queued: float = 0.0
    cached_tokens: float | None = None
    prompt_tokens: float = 0.0

    def __add__(self, other: ServerCounts) -> ServerCounts:
        """Two loads as one; what one of them does not tell is not known of both."""
        return ServerCounts(
            queue_s=_sum(self.queue_s, other.queue_s),
            queued=self.queued + other.queued,
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
        )

    @property
    def queue_ms_mean(self) -> float | None:
        """Mean time in the queue."""
        if self.queue_s is None or not self.queued:
            return None
        return round(self.queue_s * 1000 / self.queued, 3)

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens that the cache had."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return round(self.cached_tokens / self.prompt_tokens, 4)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


async def read_counters(client: ChatClient) -> dict[str, float]:
    """The counters of the server's Prometheus page by name, labels added up; empty without one."""
    for path in PATHS:
        if counters := counters_in(await client.page(path)):
            return counters
    return {}


def counters_in(text: str) -> dict[str, float]:
    """The values on a Prometheus page by name, those of one name added up."""
    found: defaultdict[str, float] = defaultdict(float)
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

    queue_s, queued, cached, prompt = None, 0.0, None, 0.0
    for name in _QUEUES:
        total, number = grown(f"{name}_sum"), grown(f"{name}_count")
        if total is not None and number:
            queue_s, queued = total, number
    for hits, parts in _CACHES:
        hit, whole = grown(hits), math.fsum(grown(part) or 0.0 for part in parts)
        if hit is not None and whole > 0:
            cached, prompt = hit, whole
    return ServerCounts(queue_s=queue_s, queued=queued, cached_tokens=cached, prompt_tokens=prompt)
