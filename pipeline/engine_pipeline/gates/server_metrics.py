"""What a server's own Prometheus metrics say of the time between two readings.

Servers that have none, or none of these, are as good as any other: then nothing is said. Names as
of vLLM 0.32, SGLang 0.5, trtllm-serve 1.2 and llama.cpp b9000; llama.cpp keeps no queue time.
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.http_stream import Exchange, Origin, get_request
from engine_pipeline.gates.lane_result import ServerSaid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.http_stream import Head

# trtllm-serve has something else below the first one, and Prometheus' text below the second.
_PATHS = ("/metrics", "/prometheus/metrics")
_QUEUE = (
    "vllm:request_queue_time_seconds",
    "sglang:queue_time_seconds",
    "trtllm_request_queue_time_seconds",
)
# Tokens found in the prefix cache, and all that were looked for there.
_CACHE = (
    ("vllm:prefix_cache_hits_total", ("vllm:prefix_cache_queries_total",)),
    (
        "llamacpp:prompt_tokens_cached_total",
        ("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"),
    ),
)
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(\{[^\n]*\})? +([^ \n]+)(?: +-?\d+)?")
_EDGE = re.compile(r'[{,]\s*le="([^"]+)"')
_MAX_BYTES = 8 << 20
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Sums over all labels.

    Attributes:
        values: by name.
        bins: of histograms, by name: upper edge → how many were at most that.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    bins: Mapping[str, Mapping[float, float]] = field(default_factory=dict)


class ServerMetrics:
    """Reads one endpoint's metrics.

    Args:
        endpoint: its metrics lie below the same address as its API.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._paths = list(_PATHS)

    async def read(self) -> Reading | None:
        """What it says now; None if it says nothing. A path without metrics is not asked again."""
        for path in tuple(self._paths):
            found = await self._get(path)
            if found is not None:
                reading = parse(found)
                if reading.values:
                    return reading
            self._paths.remove(path)
        return None

    async def _get(self, path: str) -> str | None:
        parts: list[bytes] = []
        status: list[int] = []

        def take(head: Head, data: bytes, _at: float) -> None:
            status.append(head.status)
            parts.append(data)
            if sum(map(len, parts)) > _MAX_BYTES:
                msg = f"more than {_MAX_BYTES} bytes"
                raise ValueError(msg)

        key = self._endpoint.api_key
        fields = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            origin = Origin(self._endpoint.base_url)
            async with asyncio.timeout(_TIMEOUT_S):
                await Exchange(take).make(origin, get_request(origin, path, fields))
        except (OSError, ValueError):
            return None
        return b"".join(parts).decode(errors="replace") if status and status[0] == 200 else None


def parse(text: str) -> Reading:
    """The metrics that are known here, out of Prometheus' text form."""
    wanted = {f"{name}_{part}" for name in _QUEUE for part in ("sum", "count", "bucket")}
    wanted |= {name for hits, total in _CACHE for name in (hits, *total)}
    values: dict[str, float] = {}
    bins: dict[str, dict[float, float]] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is None or found.group(1) not in wanted:
            continue
        name, labels = found.group(1), found.group(2) or ""
        try:
            number = float(found.group(3))
            edge = _EDGE.search(labels)
            if name.endswith("_bucket") and edge is not None:
                of = bins.setdefault(name.removesuffix("_bucket"), {})
                of[float(edge.group(1))] = of.get(float(edge.group(1)), 0.0) + number
            else:
                values[name] = values.get(name, 0.0) + number
        except ValueError:
            continue
    return Reading(values=values, bins=bins)


def between(before: Reading | None, after: Reading | None) -> ServerSaid | None:
    """What happened from one reading to the other; None if nothing is known of it."""
    if before is None or after is None:
        return None
    said = ServerSaid(
        queue_mean_ms=_queue_mean_ms(before, after),
        queue_p95_at_most_ms=_queue_p95_ms(before, after),
        cache_hit_share=_cache_hits(before, after),
    )
    return None if said == ServerSaid() else said


def _grown(before: Reading, after: Reading, name: str) -> float | None:
    if name not in after.values:
        return None
    more = after.values[name] - before.values.get(name, 0.0)
    return more if more >= 0 else None  # a server that was started again


def _queue_mean_ms(before: Reading, after: Reading) -> float | None:
    for name in _QUEUE:
        seconds = _grown(before, after, f"{name}_sum")
        many = _grown(before, after, f"{name}_count")
        if seconds is not None and many:
            return round(seconds / many * 1000, 3)
    return None


def _queue_p95_ms(before: Reading, after: Reading) -> float | None:
    for name in _QUEUE:
        earlier = before.bins.get(name, {})
        grown = {edge: n - earlier.get(edge, 0.0) for edge, n in after.bins.get(name, {}).items()}
        total = max(grown.values(), default=0.0)
        if total <= 0:
            continue
        edge = min(edge for edge, n in grown.items() if n >= 0.95 * total)
        return None if math.isinf(edge) else round(edge * 1000, 3)
    return None


def _cache_hits(before: Reading, after: Reading) -> float | None:
    for hits, parts in _CACHE:
        found = _grown(before, after, hits)
        total = [_grown(before, after, name) for name in parts]
        if found is None or None in total:
            continue
        whole = sum(part for part in total if part is not None)
        return round(found / whole, 4) if whole > 0 else None
    return None
