"""Makes the load of a workload on a server and measures how it bears it.

Where requests come at times, each is begun at its time whatever became of those before, so a
server that stalls is not spared. What the client itself is late with is measured, not hidden.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.lane_metrics import Sent, summarise_step, undisturbed
from engine_pipeline.gates.lane_result import LaneResult, LaneStep
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.server_metrics import ServerMetrics, between
from engine_pipeline.gates.suite import Sampling
from engine_pipeline.workload.arrival import MAX_IN_FLIGHT, Concurrency
from engine_pipeline.workload.requests import Planned, Tokeniser, fitted, planned, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.nvml.watch import GpuWatch
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload

_IGNORE_EOS = {"ignore_eos": True}
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=1)
# Two prompts of these lengths, in words, show what the tokeniser and the chat template make of
# words. The first two requests of the warm-up.
_PROBE_WORDS = (24, 120)
_PROBE_TOKENS = 4
_WARM_AT_ONCE = 4


@dataclass(slots=True)
class _Lane:
    """A load as it is being made."""

    client: ChatClient
    salt: str
    tokeniser: Tokeniser = field(default_factory=Tokeniser)
    extra: dict[str, Any] = field(default_factory=lambda: dict(_IGNORE_EOS))
    in_flight: int = 0
    most_in_flight: int = 0

    async def ask(self, prompt: str, output_tokens: int) -> Reply:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self.client.put(
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": prompt}]},
                _SAMPLING,
                {"max_tokens": output_tokens, **self.extra},
            )
        finally:
            self.in_flight -= 1

    async def send(self, request: Planned, due_at: float | None) -> Sent:
        prompt = text(request, self.salt, self.tokeniser)
        began_at = time.perf_counter()
        reply = await self.ask(prompt, request.output_tokens)
        return Sent(planned=request, due_at=due_at, began_at=began_at, reply=reply)


async def run_lane(
    client: ChatClient,
    name: str,
    workload: Workload,
    bars: LaneBars,
    *,
    progress: Progress,
    gone: Callable[[], str | None],
    gpus: GpuWatch | None = None,
    most_in_flight: int = MAX_IN_FLIGHT,
) -> LaneResult:
    """Warm up, then make each step of the workload.

    Args:
        client: an open client.
        name: the lane's, which makes its prompts its own.
        workload: what to make.
        bars: of the lane: its SLO, and what counts as late.
        progress: told after each answer.
        gone: says why there is no server any more; a step after that is not made.
        gpus: watches the boards that it runs on; requests that they disturbed do not count.
        most_in_flight: where requests come at times, one that comes while so many wait already is
            not sent, and has failed.
    """
    lane = _Lane(client=client, salt=f"{name}-")
    progress.phase("lane", f"{name}: warm-up")
    ignores_eos = await _warm_up(lane, workload)
    metrics = ServerMetrics(client.endpoint)
    steps: list[LaneStep] = []
    trouble = None
    arrival = workload.arrival
    wanted = arrival.steps if isinstance(arrival, Concurrency) else (None,)
    for number, in_flight in enumerate(wanted):
        progress.phase("lane", f"{name}: {_step(workload, in_flight)}")
        lane.most_in_flight = 0
        before = await metrics.read()
        since = time.perf_counter()
        requests = planned(workload, number)
        if in_flight is None:
            sent = await _open_loop(lane, requests, most_in_flight, progress)
        else:
            sent = await _closed_loop(lane, requests, in_flight, workload.duration_s, progress)
        if any(s.reply and s.reply.error and s.reply.error.lost_connection for s in sent):
            await settle(gone)
        until = time.perf_counter()
        kept = sent if gpus is None else undisturbed(sent, gpus.disturbances())
        made = summarise_step(
            kept or sent,
            bars,
            in_flight=in_flight,
            most_in_flight=lane.most_in_flight,
            ignores_eos=ignores_eos,
            server=between(before, await metrics.read()),
        )
        boards = () if gpus is None else gpus.use(since, until)
        steps.append(made.model_copy(update={"disturbed": len(sent) - len(kept), "gpus": boards}))
        if (trouble := gone()) is not None:
            break
    return LaneResult(
        name=name,
        workload=workload,
        digest=workload.digest,
        ignores_eos=ignores_eos,
        lengths_known=lane.tokeniser.is_known,
        steps=tuple(steps),
        trouble=trouble,
    )


def _step(workload: Workload, in_flight: int | None) -> str:
    ends = f"{workload.requests} requests" if workload.requests else f"{workload.duration_s:g} s"
    return ends if in_flight is None else f"{ends}, {in_flight} in flight"


async def _warm_up(lane: _Lane, workload: Workload) -> bool:
    """Learn what words become and whether answers run to their length; gives the latter."""
    replies = await _probe(lane)
    if any(reply.error and reply.error.kind is ErrorKind.HTTP for reply in replies):
        lane.extra = {}
        replies = await _probe(lane)
    counted = [reply.prompt_tokens for reply in replies]
    if counted[0] is not None and counted[1] is not None:
        lane.tokeniser = fitted((_PROBE_WORDS[0], counted[0]), (_PROBE_WORDS[1], counted[1]))
    ignores_eos = bool(lane.extra) and all(
        reply.completion_tokens == _PROBE_TOKENS for reply in replies
    )
    left = workload.warmup_requests - len(_PROBE_WORDS)
    # Of a step that is never made, so that no measured prompt has been seen.
    requests = planned(workload, step=-1)
    while left > 0 and (some := list(_take(requests, min(left, _WARM_AT_ONCE)))):
        sent = await asyncio.gather(*(lane.send(request, None) for request in some))
        left -= len(some)
        ignores_eos = ignores_eos and all(
            one.reply is not None and one.reply.completion_tokens == one.planned.output_tokens
            for one in sent
        )
    return ignores_eos


async def _probe(lane: _Lane) -> list[Reply]:
    plain = Tokeniser()
    replies = []
    for number, words in enumerate(_PROBE_WORDS):
        request = Planned(
            index=-number - 1, at_s=None, prompt_tokens=words, output_tokens=_PROBE_TOKENS
        )
        replies.append(await lane.ask(text(request, lane.salt, plain), _PROBE_TOKENS))
    return replies


def _take(requests: Iterator[Planned], many: int) -> Iterator[Planned]:
    for _, request in zip(range(many), requests, strict=False):
        yield request


async def _closed_loop(
    lane: _Lane,
    requests: Iterator[Planned],
    in_flight: int,
    duration_s: float | None,
    progress: Progress,
) -> list[Sent]:
    until = None if duration_s is None else time.perf_counter() + duration_s
    sent: list[Sent] = []

    async def send_on() -> None:
        for request in requests:
            if until is not None and time.perf_counter() > until:
                return
            sent.append(await lane.send(request, None))
            progress.update(len(sent), None, "requests")

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(send_on())
    return sent


async def _open_loop(
    lane: _Lane, requests: Iterator[Planned], most_in_flight: int, progress: Progress
) -> list[Sent]:
    sent: list[Sent] = []
    start = time.perf_counter()

    async def send(request: Planned, due_at: float) -> None:
        sent.append(await lane.send(request, due_at))
        progress.update(len(sent), None, "requests")

    async with asyncio.TaskGroup() as group:
        waiting: set[asyncio.Task[None]] = set()
        for request in requests:
            assert request.at_s is not None
            due_at = start + request.at_s
            # Even where it is late already: what has come is read before more is asked.
            await asyncio.sleep(max(due_at - time.perf_counter(), 0.0))
            if len(waiting) >= most_in_flight:
                now = time.perf_counter()
                sent.append(Sent(planned=request, due_at=due_at, began_at=now, reply=None))
                continue
            task = group.create_task(send(request, due_at))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
    return sent
