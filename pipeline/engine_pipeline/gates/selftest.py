"""The client measures itself: a server of known delays, in a process of its own, at the same load.

What the client says is compared with what that server noted when it wrote each token; the two read
one clock. The difference is what the client, and the way through the kernel, add to every time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.ending import CouldNotServe
from engine_pipeline.gates.prompts import prompt
from engine_pipeline.gates.speed_report import ClientError
from engine_pipeline.gates.stats import percentile
from engine_pipeline.gates.suite import Sampling
from engine_pipeline.runners import guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.gates.reply import Reply

_SERVER = "engine_pipeline.gates.testing.chat_server"
# Short, so that it can precede every load; long enough that a busy client falls behind visibly.
_BEHAVIOUR = {"ttft_s": 0.05, "gap_s": 0.02}
_TOKENS = 6
_LEAST_REQUESTS = 10
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """A server of known delays that is running."""

    base_url: str

    def measure(self, in_flight: int) -> ClientError:
        """Follow so many answers at once and compare.

        Raises:
            CouldNotServe: no request came back whole, so nothing is known of the client.
        """
        return asyncio.run(self._measure(in_flight))

    async def _measure(self, in_flight: int) -> ClientError:
        requests = max(2 * in_flight, _LEAST_REQUESTS)
        work = iter(range(requests))
        replies: dict[str, Reply] = {}
        sampling = Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=_TOKENS)

        async def send_on(client: ChatClient) -> None:
            for number in work:
                messages = prompt(number, 8)
                extra = {"ignore_eos": True, "behaviour": _BEHAVIOUR}
                replies[messages[-1].content] = await client.ask(messages, sampling, extra)

        endpoint = Endpoint(base_url=self.base_url, model="self-test")
        async with ChatClient(endpoint, timeout_s=_TIMEOUT_S) as client:
            await client.page("/truths")
            async with asyncio.TaskGroup() as group:
                for _ in range(in_flight):
                    group.create_task(send_on(client))
            truths = json.loads(await client.page("/truths") or "[]")
        return _compared(replies, truths, in_flight)


def _compared(
    replies: dict[str, Reply], truths: list[dict[str, Any]], in_flight: int
) -> ClientError:
    ttft, tpot = [], []
    for truth in truths:
        reply = replies[truth["asked"]]
        wrote = truth["wrote_at"]
        if reply.error is not None or reply.ttft_ms is None or reply.tpot_ms is None:
            continue
        ttft.append(reply.ttft_ms - (wrote[0] - truth["received_at"]) * 1000)
        tpot.append(reply.tpot_ms - (wrote[-1] - wrote[0]) * 1000 / (len(wrote) - 1))
    if not ttft:
        raise CouldNotServe(
            f"the client's self-test got none of {len(replies)} answers whole",
            hint="run the gate again; `enginectl doctor` says what is short on this machine",
            reference="self-test-failed",
        )
    return ClientError(
        in_flight=in_flight,
        requests=len(replies),
        lost=len(replies) - len(ttft),
        **{f"ttft_p{q * 100:.0f}_ms": round(percentile(ttft, q), 3) for q in (0.5, 0.95, 0.99)},
        **{f"tpot_p{q * 100:.0f}_ms": round(percentile(tpot, q), 3) for q in (0.5, 0.95)},
    )


@contextmanager
def self_testing() -> Iterator[SelfTest]:
    """A server of known delays, ended with the block.

    Raises:
        CouldNotServe: it does not start.
    """
    argv = guard.command([sys.executable, "-m", _SERVER, "--port", "0"])
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield SelfTest(base_url=f"http://127.0.0.1:{_port(process)}")
    finally:
        process.terminate()
        process.communicate()


def _port(process: subprocess.Popen[str]) -> int:
    for line in process.stdout or ():
        if "listens on" in line:
            return int(line.rpartition(" ")[2])
    raise CouldNotServe(
        "the self-test's server ended before it listened",
        hint="run the gate again; the lines above are the server's own",
        reference="self-test-failed",
    )
