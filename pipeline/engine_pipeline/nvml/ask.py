"""Asks NVML everything there is to know here, and prints the answers as one JSON object.

    python -P ask.py

A process of its own, because a call into the driver never returns when a board has fallen off the
bus. Each key is the NVML function that was asked; a function that fails has
`{"error": <NVML's code>, "text": <its words>}` as its answer. No judgement here: that is
`inventory`'s, which reads the same form from a recording.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# NVML's code for a shared library that is not there; the package for it is as good as missing.
_LIBRARY_NOT_FOUND = 12
_BOARD = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigMode",
)
_PROCESSES = "nvmlDeviceGetComputeRunningProcesses"


def answers() -> dict[str, Any]:
    """Every answer; of `nvmlInit` only that it failed, and then there are no others."""
    try:
        import pynvml
    except ImportError:
        text = "the package nvidia-ml-py is not installed"
        return {"nvmlInit": {"error": _LIBRARY_NOT_FOUND, "text": text}}
    started = _ask(pynvml, "nvmlInit")
    if started is not None:
        return {"nvmlInit": started}
    try:
        count = _ask(pynvml, "nvmlDeviceGetCount")
        return {
            "nvmlSystemGetDriverVersion": _ask(pynvml, "nvmlSystemGetDriverVersion"),
            "nvmlSystemGetCudaDriverVersion_v2": _ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2"),
            "nvmlDeviceGetCount": count,
            "devices": [_device(pynvml, index) for index in range(count)]
            if isinstance(count, int)
            else [],
        }
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"nvmlDeviceGetHandleByIndex": _failure(error)}
    found = {name: _ask(nvml, name, handle) for name in _BOARD}
    processes = _ask(nvml, _PROCESSES, handle)
    if isinstance(processes, list):
        for process in processes:
            process["nvmlSystemGetProcessName"] = _ask(
                nvml, "nvmlSystemGetProcessName", process["pid"]
            )
    return found | {_PROCESSES: processes}


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    function: Callable[..., Any] = getattr(nvml, name)
    try:
        return _plain(function(*arguments))
    except nvml.NVMLError as error:
        return _failure(error)


def _failure(error: Any) -> dict[str, Any]:
    return {"error": getattr(error, "value", None), "text": str(error)}


def _plain(value: Any) -> Any:
    """JSON for what the package returns: texts, numbers, lists, C structures."""
    if isinstance(value, bytes):
        # Releases before 11.515 returned them.
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "usedGpuMemory"):
        return {"pid": value.pid, "usedGpuMemory": value.usedGpuMemory}
    if hasattr(value, "_fields_"):
        return {field[0]: _plain(getattr(value, field[0])) for field in value._fields_}
    return value


if __name__ == "__main__":
    json.dump(answers(), sys.stdout)
