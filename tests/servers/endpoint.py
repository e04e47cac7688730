"""OpenAI-compatible endpoints of known behaviour, each in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer


@contextmanager
def endpoint(
    *, models: tuple[str, ...] = ("engine",), api_key: str | None = None, **behaviour
) -> Iterator[tuple[str, ChatServer]]:
    """A server that answers while the block runs: its URL, and what it noted."""
    server = ChatServer(Behaviour(**behaviour), models=models, api_key=api_key)
    with serving_endpoint(server) as url:
        yield url, server


@contextmanager
def serving_endpoint(server: ChatServer) -> Iterator[str]:
    """The URL of a server that answers while the block runs."""
    ready = threading.Event()
    held: dict = {}

    async def serve() -> None:
        held["loop"], held["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with server.listening() as url:
            held["url"] = url
            ready.set()
            await held["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield held["url"]
    finally:
        held["loop"].call_soon_threadsafe(held["stop"].set)
        thread.join(20)
