"""What the measuring client itself adds: shown by a server that answers at once, under one load.

That server is a process of its own on this machine. Its answer takes time as well, so the figures
are a bound: the client adds no more than this.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.ending import CouldNotServe
from engine_pipeline.gates.load import Load
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.server import serving
from engine_pipeline.gates.stats import percentile

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.gates.report import PerformanceResult
    from engine_pipeline.progress import Progress

_SERVER = "engine_pipeline.gates.testing.chat_server"
_LEAST_REQUESTS = 20
_TOKENS = 8
_TIMEOUT_S = 30.0


def client_overhead(load: Load, *, progress: Progress, directory: Path) -> ClientOverhead:
    """Measure it with as many answers in flight as `load` has.

    Raises:
        CouldNotServe: the server does not start, or no answer of it came whole.
    """
    command = ServeCommand(
        argv=("{python}", "-m", _SERVER, "--port", "{port}"), model_name="self-test"
    )
    own = Load(
        requests=max(2 * load.concurrency, _LEAST_REQUESTS),
        concurrency=load.concurrency,
        output_tokens=_TOKENS,
        prompt_words=load.prompt_words,
    )
    with serving(
        command,
        directory,
        progress=progress,
        log_path=directory / "self-test.log",
        timeout_s=_TIMEOUT_S,
    ) as server:

        async def ask() -> PerformanceResult:
            async with ChatClient(server.endpoint, timeout_s=_TIMEOUT_S) as client:
                return await measure(client, own, progress=progress, gone=lambda: None)

        result = asyncio.run(ask())
    good = [one for one in result.samples if one.error is None]
    ttft = [one.ttft_ms for one in good if one.ttft_ms is not None]
    tpot = [one.tpot_ms for one in good if one.tpot_ms is not None]
    if not ttft or not tpot:
        raise CouldNotServe(
            f"the client's self-test got none of {result.requests} answers whole",
            hint="run the gate again; `enginectl doctor` says what is short on this machine",
            reference="self-test-failed",
        )
    return ClientOverhead(
        in_flight=load.concurrency,
        requests=len(good),
        ttft_p50_ms=percentile(ttft, 0.5),
        ttft_p95_ms=percentile(ttft, 0.95),
        tpot_p50_ms=percentile(tpot, 0.5),
    )
