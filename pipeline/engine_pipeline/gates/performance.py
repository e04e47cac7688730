"""Makes load on a server, a fixed number of requests in flight, and measures how it bears it."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.prompts import prompt
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.speed import summarise
from engine_pipeline.gates.suite import Sampling
from engine_pipeline.nvml.use import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.load import Load
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.report import PerformanceResult
    from engine_pipeline.nvml.watch import GpuWatch
    from engine_pipeline.progress import Progress

# Understood by llama.cpp's server, vLLM and SGLang; servers that do not know it either ignore it
# or answer 400, so whether it works is seen from what comes back.
_IGNORE_EOS = {"ignore_eos": True}


async def measure(
    client: ChatClient,
    load: Load,
    *,
    progress: Progress,
    gone: Callable[[], str | None],
    gpus: GpuWatch | None = None,
    first: int = 0,
) -> PerformanceResult:
    """Warm up, then send `load.requests` requests, `load.concurrency` of them at a time.

    Args:
        client: an open client.
        load: what to make.
        progress: told after each measured answer.
        gone: says why there is no server any more; waited for a little if connections were lost.
        gpus: watches the boards that it runs on; requests that they disturbed do not count.
        first: number of the first prompt. Loads on the same server take numbers of their own: a
            prompt that was sent before would be answered from a cache.
    """
    warmup = range(-load.warmup_requests, 0)
    extra: dict[str, Any] = dict(_IGNORE_EOS)
    warm = await _send(client, load, warmup, extra)
    if any(reply.error and reply.error.kind is ErrorKind.HTTP for reply in warm):
        extra = {}
        warm = await _send(client, load, warmup, extra)
    ignores_eos = bool(extra) and all(
        reply.completion_tokens == load.output_tokens for reply in warm
    )
    finished = count(1)
    progress.update(0, load.requests, "requests")

    def tick() -> None:
        progress.update(next(finished), load.requests, "requests")

    since = time.perf_counter()
    replies = await _send(client, load, range(first, first + load.requests), extra, tick)
    until = time.perf_counter()
    if any(reply.error and reply.error.lost_connection for reply in replies):
        await settle(gone)
    if gpus is None:
        return summarise(replies, load, ignores_eos=ignores_eos)
    spans = gpus.disturbances()
    kept = [one for one in replies if not overlaps(one.sent_at, one.ended_at, spans)]
    # Of none there are no metrics; then all stand, and no verdict is drawn from them.
    made = summarise(kept or replies, load, ignores_eos=ignores_eos)
    return made.model_copy(
        update={"disturbed": len(replies) - len(kept), "gpus": gpus.use(since, until)}
    )


async def _send(
    client: ChatClient,
    load: Load,
    indices: Iterable[int],
    extra: dict[str, Any],
    tick: Callable[[], None] = lambda: None,
) -> Sequence[Reply]:
    sampling = Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=load.output_tokens)
    work = iter(indices)
    replies: list[Reply] = []

    async def send_on() -> None:
        for index in work:
            replies.append(await client.ask(prompt(index, load.prompt_words), sampling, extra))
            tick()

    async with asyncio.TaskGroup() as group:
        for _ in range(load.concurrency):
            group.create_task(send_on())
    return replies
