"""Load clients as teams write them: one shared `aiohttp` session, or one shared `httpx` client.

Run by `load_client.py` in the peers' environment; prints the times to the first content of all
answers, in ms, as JSON. Each is written as its library's documents show it: connections are pooled
without a limit, the clock is read around the call and at each line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import asynccontextmanager

_PATIENCE_S = 120.0


def _body(index: int, words: int, tokens: int) -> dict[str, object]:
    return {
        "model": "delays",
        "messages": [{"role": "user", "content": f"{index} " + "word " * words}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _has_content(line: str) -> bool:
    data = line.removeprefix("data:").strip()
    if not data or data == "[DONE]":
        return False
    choices = json.loads(data).get("choices") or [{}]
    return bool(choices[0].get("delta", {}).get("content"))


@asynccontextmanager
async def _aiohttp(url: str):
    import aiohttp  # noqa: PLC0415 -- each library only where it is measured

    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def lines(body: dict[str, object]):
            async with session.post(url, json=body) as response:
                async for line in response.content:
                    yield line.decode()

        yield lines


@asynccontextmanager
async def _httpx(url: str):
    import httpx  # noqa: PLC0415

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=_PATIENCE_S) as client:

        async def lines(body: dict[str, object]):
            async with client.stream("POST", url, json=body) as response:
                async for line in response.aiter_lines():
                    yield line

        yield lines


async def _load(options: argparse.Namespace) -> list[float]:
    opened = {"aiohttp": _aiohttp, "httpx": _httpx}[options.library]
    work = iter(range(options.requests))
    ttft_ms: list[float] = []
    async with opened(f"{options.url}/v1/chat/completions") as lines:

        async def send_on() -> None:
            for index in work:
                sent_at = time.perf_counter()
                first_at = None
                async for line in lines(_body(index, options.words, options.tokens)):
                    now = time.perf_counter()
                    if first_at is None and _has_content(line):
                        first_at = now
                if first_at is not None:
                    ttft_ms.append((first_at - sent_at) * 1000)

        await asyncio.gather(*(send_on() for _ in range(options.concurrency)))
    return ttft_ms


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("aiohttp", "httpx"))
    parser.add_argument("--url", required=True)
    for name in ("concurrency", "requests", "tokens", "words"):
        parser.add_argument(f"--{name}", type=int, required=True)
    print(json.dumps(asyncio.run(_load(parser.parse_args()))))
