"""Makes load on a server as a workload says, and brings home what came back.

Closed loads keep a number of requests in flight; open loads send when a request is due, however
many are in flight by then. A request is sent once: nothing is retried, so nothing is hidden.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.schedule import Level, levels, warmup
from engine_pipeline.gates.server_metrics import counts_between, read_counters
from engine_pipeline.gates.speed import summarise
from engine_pipeline.gates.speed_sample import LevelRun, Timed
from engine_pipeline.gates.suite import Sampling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.policy import PerformanceBars
    from engine_pipeline.gates.schedule import Planned
    from engine_pipeline.gates.speed_report import PerformanceResult
    from engine_pipeline.gates.workload import Workload
    from engine_pipeline.progress import Progress

# Understood by llama.cpp's server, vLLM and SGLang; servers that do not know it either ignore it
# or answer 400, so whether it works is seen from what comes back.
_IGNORE_EOS = {"ignore_eos": True}


async def measure(
    client: ChatClient,
    bars: PerformanceBars,
    *,
    progress: Progress,
    gone: Callable[[], str | None],
) -> PerformanceResult:
    """Warm up, then send `bars.requests` requests, `bars.concurrency` of them at a time.

    Args:
        client: an open client.
        bars: the load to make.
        progress: told after each measured answer.
        gone: says why there is no server any more; waited for a little if connections were lost.
    """
    [run] = await run_workload(client, bars.workload, progress=progress, gone=gone)
    return summarise([run], warmup_requests=bars.warmup_requests)


async def run_workload(
    client: ChatClient,
    workload: Workload,
    *,
    progress: Progress,
    gone: Callable[[], str | None],
) -> tuple[LevelRun, ...]:
    """Warm up, then run each step of the workload, one after the other; arguments as `measure`."""
    steps = levels(workload)
    extra, ignores_eos = await _warm_up(client, workload)
    total = sum(len(step.planned) for step in steps)
    finished = count(1)
    progress.update(0, total, "requests")

    def tick() -> None:
        progress.update(next(finished), total, "requests")

    runs = []
    for step in steps:
        before = await read_counters(client)
        timed = await send(client, step, extra, tick)
        if any(item.reply.error and item.reply.error.lost_connection for item in timed):
            await settle(gone)
        counts = counts_between(before, await read_counters(client))
        runs.append(LevelRun(level=step, ignores_eos=ignores_eos, timed=timed, counts=counts))
    return tuple(runs)


async def send(
    client: ChatClient,
    level: Level,
    extra: dict[str, Any],
    tick: Callable[[], None] = lambda: None,
) -> tuple[Timed, ...]:
    """Send what is planned, and wait for every answer; in the order in which they ended.

    Nothing is sent once the level's duration is over; what is in flight then is waited for.
    """
    timed: list[Timed] = []
    started = time.perf_counter()
    until = started + level.duration_s if level.duration_s is not None else float("inf")

    async def ask(planned: Planned, scheduled_at: float) -> None:
        reply = await client.ask(planned.messages, _sampling(planned), extra)
        timed.append(Timed(planned=planned, scheduled_at=scheduled_at, reply=reply))
        tick()

    async with asyncio.TaskGroup() as group:
        if level.concurrency is None:
            for planned in level.planned:
                due = started + (planned.at_s or 0.0)
                if due > until:
                    break
                await asyncio.sleep(due - time.perf_counter())
                group.create_task(ask(planned, due))
        else:
            work = iter(level.planned)
            for _ in range(level.concurrency):
                group.create_task(_send_on(work, until, ask))
    return tuple(timed)


async def _send_on(
    work: Iterable[Planned], until: float, ask: Callable[[Planned, float], Awaitable[None]]
) -> None:
    for planned in work:
        now = time.perf_counter()
        if now > until:
            return
        await ask(planned, now)


async def _warm_up(client: ChatClient, workload: Workload) -> tuple[dict[str, Any], bool]:
    """The extra fields to send from now on, and whether answers then run to their full length."""
    planned = warmup(workload)
    # As many at once as will be: servers prepare for a batch size when they first meet it.
    at_once = min(len(planned), workload.most_in_flight or len(planned))
    level = Level(name="warm-up", concurrency=at_once, duration_s=None, planned=planned)
    extra: dict[str, Any] = dict(_IGNORE_EOS)
    timed = await send(client, level, extra)
    if any(_refused(item) for item in timed):
        extra = {}
        timed = await send(client, level, extra)
    obeyed = all(item.reply.completion_tokens == item.planned.output_tokens for item in timed)
    return extra, bool(extra) and obeyed


def _refused(item: Timed) -> bool:
    return item.reply.error is not None and item.reply.error.kind is ErrorKind.HTTP


def _sampling(planned: Planned) -> Sampling:
    return Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=planned.output_tokens)
