"""Makes load on a server, a fixed number of requests in flight, and measures how it bears it."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.prompts import prompt
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.speed import summarise
from engine_pipeline.gates.suite import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.load import Load
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.report import PerformanceResult
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
) -> PerformanceResult:
    """Warm up, then send `load.requests` requests, `load.concurrency` of them at a time.

    Args:
        client: an open client.
        load: what to make.
        progress: told after each measured answer.
        gone: says why there is no server any more; waited for a little if connections were lost.
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

    replies = await _send(client, load, range(load.requests), extra, tick)
    if any(reply.error and reply.error.lost_connection for reply in replies):
        await settle(gone)
    return summarise(replies, load, ignores_eos=ignores_eos)


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
