"""Asks NVML again and again how the boards are doing, a line of JSON each time, until told to stop.

    python -P sample.py PERIOD_S

Told to stop by the end of its standard input. A process of its own for the reason that `ask` is
one; the first line says which boards there are, or why there are none. Times are those of
`time.perf_counter`, which on Linux is one clock for all processes.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

_LIBRARY = "the package nvidia-ml-py is not installed"


def main() -> None:
    """Say which boards there are, then sample them."""
    period_s = float(sys.argv[1])
    try:
        import pynvml
    except ImportError:
        _say({"absent": _LIBRARY})
        return
    try:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        boards = [
            {
                "index": index,
                "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
                "name": _text(pynvml.nvmlDeviceGetName(handle)),
            }
            for index, handle in enumerate(handles)
        ]
    except pynvml.NVMLError as error:
        _say({"absent": str(error)})
        return
    chosen = _visible(boards, os.environ.get("CUDA_VISIBLE_DEVICES"))
    _say({"boards": chosen})
    while True:
        found = [_reading(pynvml, handles[board["index"]]) for board in chosen]
        _say({"at": time.perf_counter(), "boards": found})
        if select.select([sys.stdin], [], [], period_s)[0]:
            return


def _visible(boards: list[dict[str, Any]], devices: str | None) -> list[dict[str, Any]]:
    """Those that CUDA would show, as far as that is certain; `visible` has the whole rule."""
    if devices is None:
        return boards
    chosen: list[dict[str, Any]] = []
    for item in (part.strip() for part in devices.split(",")):
        found = [
            board
            for board in boards
            if (item and board["uuid"].startswith(item)) or item == str(board["index"])
        ]
        if len(found) != 1 or found[0] in chosen:
            break
        chosen += found
    return chosen


def _reading(nvml: Any, handle: Any) -> dict[str, Any]:
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    busy = _ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
    return {
        "sm_clock_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, 1),
        "memory_clock_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, 2),
        "power_mw": _ask(nvml, "nvmlDeviceGetPowerUsage", handle),
        "temperature_c": _ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
        "memory_used_bytes": None if memory is None else int(memory.used),
        "busy_percent": None if busy is None else int(busy.gpu),
        "reasons": _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle),
    }


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None  # boards differ in what they tell


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
