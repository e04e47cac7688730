"""In place of the `pynvml` module of nvidia-ml-py: answers from the file named by FAKE_NVML.

Put this directory on PYTHONPATH, and every process believes in the boards of the file, which has
the form of tests/data/nvml. Values have the types that the real module gives: C structures for
memory, objects for processes, exceptions with a code.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace


class NVMLError(Exception):
    def __init__(self, value, text):
        super().__init__(text)
        self.value = value


class c_nvmlMemory_t(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


def _recorded():
    return json.loads(Path(os.environ["FAKE_NVML"]).read_bytes())


def _answer(value):
    if isinstance(value, dict) and "error" in value:
        raise NVMLError(value["error"], value["text"])
    return value


def nvmlInit():
    # A board that has fallen off the bus takes the caller with it.
    time.sleep(float(os.environ.get("FAKE_NVML_HANGS_S", "0")))
    return _answer(_recorded().get("nvmlInit"))


def nvmlShutdown():
    return None


def nvmlSystemGetDriverVersion():
    return _answer(_recorded()["nvmlSystemGetDriverVersion"])


def nvmlSystemGetCudaDriverVersion_v2():
    return _answer(_recorded()["nvmlSystemGetCudaDriverVersion_v2"])


def nvmlDeviceGetCount():
    return _answer(_recorded()["nvmlDeviceGetCount"])


def nvmlDeviceGetHandleByIndex(index):
    device = _recorded()["devices"][index]
    _answer(device.get("nvmlDeviceGetHandleByIndex"))
    return device


def nvmlDeviceGetName(handle):
    # Older releases give bytes.
    return _answer(handle["nvmlDeviceGetName"]).encode()


def nvmlDeviceGetUUID(handle):
    return _answer(handle["nvmlDeviceGetUUID"])


def nvmlDeviceGetCudaComputeCapability(handle):
    return tuple(_answer(handle["nvmlDeviceGetCudaComputeCapability"]))


def nvmlDeviceGetMemoryInfo(handle):
    return c_nvmlMemory_t(**_answer(handle["nvmlDeviceGetMemoryInfo"]))


def nvmlDeviceGetMigMode(handle):
    return _answer(handle["nvmlDeviceGetMigMode"])


def nvmlDeviceGetComputeRunningProcesses(handle):
    found = _answer(handle["nvmlDeviceGetComputeRunningProcesses"])
    return [SimpleNamespace(pid=p["pid"], usedGpuMemory=p["usedGpuMemory"]) for p in found]


def nvmlSystemGetProcessName(pid):
    for device in _recorded()["devices"]:
        for process in device.get("nvmlDeviceGetComputeRunningProcesses", ()):
            if process["pid"] == pid:
                return _answer(process["nvmlSystemGetProcessName"])
    raise NVMLError(6, "Not Found")


def _now(handle, name):
    """What a board tells of how it is doing; those of tests/data/nvml tell nothing."""
    return _answer(handle.get(name, {"error": 3, "text": "Not Supported"}))


def nvmlDeviceGetClockInfo(handle, which):
    return _now(handle, "nvmlDeviceGetClockInfo")[which - 1]


def nvmlDeviceGetPowerUsage(handle):
    return _now(handle, "nvmlDeviceGetPowerUsage")


def nvmlDeviceGetTemperature(handle, _sensor):
    return _now(handle, "nvmlDeviceGetTemperature")


def nvmlDeviceGetUtilizationRates(handle):
    gpu, memory = _now(handle, "nvmlDeviceGetUtilizationRates")
    return SimpleNamespace(gpu=gpu, memory=memory)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    # Read again each time: a test makes a board hot while somebody looks.
    hot = Path(os.environ["FAKE_NVML"]).with_suffix(".hot")
    if hot.exists():
        return int(hot.read_text())
    return _now(handle, "nvmlDeviceGetCurrentClocksThrottleReasons")
