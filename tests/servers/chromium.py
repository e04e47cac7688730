"""A real browser without a window, told what to do over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 60.0
_LISTENING = re.compile(rb"DevTools listening on ws://([^/\s]+)/")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_MEASURE = """
(() => {
  const wide = [...document.querySelectorAll('body *')].filter(element => {
    const box = element.getBoundingClientRect();
    const scrolls = element.closest('pre, svg, .scroll');
    return box.width && !scrolls && box.right > window.innerWidth + 1;
  });
  return {
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    wide: wide.slice(0, 5).map(element => element.outerHTML.slice(0, 120)),
    squeezed: [...document.querySelectorAll('.bars tbody td, tbody th, dd')].filter(
      element => element.innerText.length > 6
        && element.getBoundingClientRect().width < (element.tagName === 'TH' ? 150 : 70)
    ).map(element => element.innerText),
    scripts: document.scripts.length,
    dirty: window.dirty === undefined ? null : String(window.dirty),
    background: getComputedStyle(document.body).backgroundColor,
    verdict: document.querySelector('header .verdict').innerText.trim(),
    verdictBottom: document.querySelector('header .verdict').getBoundingClientRect().bottom,
    smallest: Math.min(...[...document.querySelectorAll('body *')].filter(e => e.innerText)
      .map(e => parseFloat(getComputedStyle(e).fontSize))),
  };
})()
"""


def find_chromium() -> str | None:
    """The program, if there is one on this machine."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@dataclass
class Seen:
    """One page as the browser showed it.

    Attributes:
        requests: every address it asked for, its own first; `data:` ones are no requests.
        complaints: what it wrote to its console, such as what its own policy blocked.
        facts: what `_MEASURE` found.
        png: of the whole page, or of its first `height` pixels.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    png: bytes = b""


@contextmanager
def running(profile: Path) -> Iterator[str]:
    """A browser with its files in an empty directory; the address that it takes orders at."""
    program = find_chromium()
    assert program is not None
    process = subprocess.Popen(
        [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    patience = threading.Timer(_PATIENCE_S, process.kill)
    patience.start()
    try:
        said = []
        # It says where it listens in one line of its log.
        for line in process.stderr:
            said.append(line)
            if (found := _LISTENING.search(line)) is not None:
                break
        else:
            pytest.fail("the browser does not listen: " + b"".join(said).decode(errors="replace"))
        patience.cancel()
        # Read on, so that a full pipe never stops it.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found.group(1).decode()
    finally:
        patience.cancel()
        process.kill()
        process.wait()


def look_at(
    url: str, browser: str, *, width: int, height: int, scheme: str, scale: float = 1.0
) -> Seen:
    """Open a page in a tab of its own and say what it showed.

    Args:
        url: of the page.
        browser: the address of a running one.
        width: of the window, in CSS pixels.
        height: of it, and of the picture.
        scheme: `light` or `dark`.
        scale: of the picture.
    """
    return asyncio.run(_look_at(url, browser, width, height, scheme, scale))


async def _look_at(
    url: str, browser: str, width: int, height: int, scheme: str, scale: float
) -> Seen:
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://{browser}/json/new?about:blank") as response:
            target = json.loads(await response.text())
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = _Page(socket)
            for domain in ("Page", "Network", "Runtime", "Log"):
                await page.do(f"{domain}.enable")
            await page.do(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=scale,
                mobile=width < 600,
            )
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            await page.do("Emulation.setEmulatedMedia", features=features)
            await page.do("Page.navigate", url=url)
            await page.until_loaded()
            facts = await page.do("Runtime.evaluate", expression=_MEASURE, returnByValue=True)
            shot = await page.do("Page.captureScreenshot", format="png")
            page.seen.facts = facts["result"]["value"]
            page.seen.png = base64.b64decode(shot["data"])
            await page.do("Page.close")
            return page.seen


class _Page:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.seen = Seen()
        self._loaded = False

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def until_loaded(self) -> None:
        while not self._loaded:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=_PATIENCE_S)
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                address = params["request"]["url"]
                if not address.startswith("data:"):
                    self.seen.requests.append(address)
            case "Log.entryAdded":
                self.seen.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.seen.complaints.append(json.dumps(params))
            case "Page.loadEventFired":
                self._loaded = True
        return message
