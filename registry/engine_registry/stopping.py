"""Whether somebody asked this process to end: those who wait in other threads stop waiting.

An exception of Ctrl-C reaches the main thread alone, and that waits for its helpers before it goes.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

STOPPING = threading.Event()


def stop_waiting_on_interrupt() -> None:
    """Have Ctrl-C set `STOPPING` before it raises; a process told to ignore it goes on doing so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    STOPPING.set()
    signal.default_int_handler(number, frame)
    raise AssertionError("the default handler raises")
