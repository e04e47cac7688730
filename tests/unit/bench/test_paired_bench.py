"""The proxy of bench/paired.py plants what it says it plants."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.suite import Message, Sampling
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer

BENCH = Path(__file__).parents[3] / "bench"
ASKED = (Message(role="user", content="go on"),)
SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=5)


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("paired")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCH:
            del sys.modules[name]


def through(paired, first: float, between: float):
    """The same answer of a server of known delays, seen through the proxy."""

    async def ask():
        server = ChatServer(Behaviour(ttft_s=0.1, gap_s=0.02))
        async with server.listening() as url:
            with paired.proxied(int(url.rpartition(":")[2]), first, between) as port:
                endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}", model="x")
                async with ChatClient(endpoint, timeout_s=30) as client:
                    reply = await client.ask(ASKED, SAMPLING)
            [truth] = server.truths
            return reply, truth

    return asyncio.run(ask())


@pytest.mark.parametrize(("first", "between"), [(1.0, 1.0), (2.0, 1.0), (1.0, 3.0)])
def test_the_proxy_stretches_one_time_and_leaves_the_other(paired, first, between):
    reply, truth = through(paired, first, between)
    assert reply.error is None
    assert reply.completion_tokens == 5
    # Nothing arrives before it is due; how much later it comes is the machine's affair.
    written = (truth.wrote_at[0] - truth.received_at) * 1000
    assert reply.ttft_ms >= written * first * 0.99
    span = (truth.wrote_at[-1] - truth.wrote_at[0]) * 1000 / 4
    assert reply.tpot_ms >= span * between * 0.9
    assert "".join(reply.text.split()) == "onetwothreefourfive"
