"""What NVML's answers say: driver, boards, who uses them. Pure.

An answer that failed is unknown, not zero: boards with memory shared with the processor report no
memory (GB10), and boards that cannot be cut up report no MIG mode.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from engine_registry.documents import Value

_NOT_SUPPORTED = 3
_MIB = 1 << 20


class Mig(StrEnum):
    """Whether a board is cut into instances."""

    OFF = "off"
    ON = "on"
    # Set, and in force after the next reset of the board.
    TURNING_ON = "turning-on"
    TURNING_OFF = "turning-off"
    NOT_THERE = "not-there"
    UNKNOWN = "unknown"


class GpuProcess(Value):
    """A process that computes on a board; its PID is the host's, also when asked in a container.

    Attributes:
        name: None where it is another user's or another container's.
        memory_bytes: None where the driver does not say.
    """

    pid: int
    name: str | None = None
    memory_bytes: Annotated[int | None, Field(ge=0)] = None

    def __str__(self) -> str:
        """`4711 (python3, 512 MiB)`."""
        name = self.name or "unknown program"
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes // _MIB} MiB"
        return f"{self.pid} ({name}{memory})"


class Board(Value):
    """One GPU board; None for what the driver does not say.

    Attributes:
        index: the driver's, in PCI bus order; CUDA may count differently.
        sm: compute capability as major*10+minor.
        processes: None if the driver does not tell who computes on it.
    """

    index: Annotated[int, Field(ge=0)]
    name: str
    uuid: str
    sm: int | None = None
    memory_bytes: Annotated[int | None, Field(ge=0)] = None
    free_bytes: Annotated[int | None, Field(ge=0)] = None
    mig: Mig = Mig.UNKNOWN
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def memory_mib(self) -> int | None:
        """As the driver's own tool prints it."""
        return None if self.memory_bytes is None else self.memory_bytes // _MIB

    @property
    def free_mib(self) -> int | None:
        """What no process holds now."""
        return None if self.free_bytes is None else self.free_bytes // _MIB


class Inventory(Value):
    """Everything about a machine's GPUs.

    Attributes:
        driver: its version.
        cuda: newest CUDA version that the driver can do, `12.8`.
        boards: those that answer.
        lost: those that do not, with what the driver says of them.
        absent: why there are no boards at all; empty if the driver was asked.
    """

    driver: str | None = None
    cuda: str | None = None
    boards: tuple[Board, ...] = ()
    lost: tuple[str, ...] = ()
    absent: str = ""


def inventory_of(answers: dict[str, Any]) -> Inventory:
    """What the answers of `ask` mean."""
    if (failed := _failed(answers.get("nvmlInit"))) is not None:
        return Inventory(absent=failed)
    boards: list[Board] = []
    lost = []
    for index, device in enumerate(answers.get("devices", ())):
        trouble = _failed(device.get("nvmlDeviceGetHandleByIndex")) or _failed(
            device.get("nvmlDeviceGetUUID")
        )
        if trouble is None:
            boards.append(_board(index, device))
        else:
            lost.append(f"GPU {index}: {trouble}")
    return Inventory(
        driver=_known(answers.get("nvmlSystemGetDriverVersion")),
        cuda=_cuda(_known(answers.get("nvmlSystemGetCudaDriverVersion_v2"))),
        boards=tuple(boards),
        lost=tuple(lost),
    )


def _board(index: int, device: dict[str, Any]) -> Board:
    capability = _known(device.get("nvmlDeviceGetCudaComputeCapability"))
    memory = _known(device.get("nvmlDeviceGetMemoryInfo")) or {}
    return Board(
        index=index,
        name=_known(device.get("nvmlDeviceGetName")) or "unknown board",
        uuid=device["nvmlDeviceGetUUID"],
        sm=capability[0] * 10 + capability[1] if capability else None,
        memory_bytes=memory.get("total"),
        free_bytes=memory.get("free"),
        mig=_mig(device.get("nvmlDeviceGetMigMode")),
        processes=_processes(device.get("nvmlDeviceGetComputeRunningProcesses")),
    )


def _mig(answer: Any) -> Mig:
    if isinstance(answer, dict):
        return Mig.NOT_THERE if answer.get("error") == _NOT_SUPPORTED else Mig.UNKNOWN
    if not answer:
        return Mig.UNKNOWN
    current, pending = bool(answer[0]), bool(answer[1])
    if current == pending:
        return Mig.ON if current else Mig.OFF
    return Mig.TURNING_ON if pending else Mig.TURNING_OFF


def _processes(answer: Any) -> tuple[GpuProcess, ...] | None:
    if not isinstance(answer, list):
        return None
    return tuple(
        GpuProcess(
            pid=item["pid"],
            name=_known(item.get("nvmlSystemGetProcessName")),
            memory_bytes=item.get("usedGpuMemory"),
        )
        for item in answer
    )


def _cuda(number: int | None) -> str | None:
    """`12.8` of 12080."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _known(answer: Any) -> Any:
    """The answer; None if there is none or it failed."""
    return None if _failed(answer) is not None else answer


def _failed(answer: Any) -> str | None:
    """The driver's words of a failure; None for an answer."""
    if isinstance(answer, dict) and "error" in answer:
        return str(answer.get("text") or f"NVML error {answer['error']}")
    return None
