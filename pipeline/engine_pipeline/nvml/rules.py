"""Can this machine's boards build or serve for a SKU now: one finding per rule. Pure.

    driver        there is one, and it is at least the one that the toolkit's release goes with
    sku           boards of that name
    form-factor   of that chip, and on that board: PCIe, SXM and NVL are tuned apart
    sm            of that compute capability, as the driver says it
    memory        of that size; another one is another board, or a slice of it
    mig           not cut into instances: an engine has a whole board
    world-size    as many as the engine has ranks
    free-memory   and that much of each is free

Rules look at the boards that the rules before left over, and end at the first one that leaves too
few: whatever came after would be about other boards. What a driver does not say breaks no rule
here; the build would show it at once, unlike on a node that is judged from afar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.compat.releases import version_parts
from engine_pipeline.nvml.inventory import Mig
from engine_pipeline.promote.findings import Finding
from engine_pipeline.spec.hardware import GpuSku, Host, HostGpu, matches_host, skus_of_host
from engine_registry.errors import ExitCode, Incompatible

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.nvml.inventory import Board, Inventory

# What a board of its own holds with no process on it: driver, page tables, a console.
_FREE_SHARE = 0.9
_MIB = 1 << 20
_WHOLE = frozenset({Mig.OFF, Mig.NOT_THERE, Mig.UNKNOWN})
_FORMS = {"sxm": "an SXM board", "pcie": "a PCIe card", "nvl": "an NVL board"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is wanted of a machine's GPUs.

    Attributes:
        sku: the board.
        ranks: how many of them.
        driver: the driver that the toolkit's release goes with; None if none is known.
        free_bytes: what must be free on each; None for nearly all of it, since a builder measures
            with what it finds.
    """

    sku: GpuSku
    ranks: int = 1
    driver: str | None = None
    free_bytes: int | None = None


def judge(inventory: Inventory, demand: Demand) -> tuple[Finding, ...]:
    """Each rule's finding, up to the first one that leaves too few boards."""
    findings = [_driver(inventory, demand)]
    boards = inventory.boards
    if not findings[0].holds and not boards:
        return tuple(findings)
    rules: tuple[Callable[[tuple[Board, ...], Demand], tuple[Finding, tuple[Board, ...]]], ...] = (
        _sku,
        _form_factor,
        _sm,
        _memory,
        _mig,
        _world_size,
        _free_memory,
    )
    for rule in rules:
        finding, boards = rule(boards, demand)
        findings.append(finding)
        if not finding.holds:
            break
    return tuple(findings)


def fitting(inventory: Inventory, demand: Demand) -> tuple[Board, ...]:
    """Boards that are of the SKU and whole, whoever uses them; those with most free memory first.

    Raises:
        Incompatible: `gpu-driver-unfit`, `gpu-sku-differs`, `gpu-form-factor-differs`,
            `gpu-sm-differs`, `gpu-memory-differs`, `gpu-is-cut`, `gpus-too-few`; both sides.
    """
    for finding in judge(inventory, demand):
        if not finding.holds and finding.rule in _REFERENCES:
            raise Incompatible(finding.says, hint=finding.hint, reference=_REFERENCES[finding.rule])
    boards = [board for board in inventory.boards if _is(demand.sku, board) and board.mig in _WHOLE]
    return tuple(sorted(boards, key=lambda board: (-(board.free_bytes or 0), board.index)))


def lacks_memory(board: Board, demand: Demand) -> str:
    """Both sides, if too little of the board's memory is free; else empty."""
    wanted = demand.free_bytes
    if wanted is None:
        wanted = int((board.memory_bytes or 0) * _FREE_SHARE)
    if board.free_bytes is None or board.free_bytes >= wanted:
        return ""
    held = f", held by {', '.join(map(str, board.processes))}" if board.processes else ""
    return f"GPU {board.index} has {board.free_mib} MiB free, {wanted // _MIB} needed{held}"


def _driver(inventory: Inventory, demand: Demand) -> Finding:
    lost = f"; {'; '.join(inventory.lost)}" if inventory.lost else ""
    if inventory.absent or not inventory.boards:
        why = (inventory.absent or "the NVIDIA driver knows no GPU") + lost
        return _finding("driver", False, f"{demand.sku.name} needs a GPU, here: {why}", _NO_DRIVER)
    if demand.driver is None or inventory.driver is None:
        return _finding("driver", True, f"driver {inventory.driver or 'of unknown version'}", "")
    return _finding(
        "driver",
        version_parts(inventory.driver) >= version_parts(demand.driver),
        f"the toolkit goes with driver {demand.driver}, here is {inventory.driver}{lost}",
        f"install driver {demand.driver} or newer on this machine",
    )


_NO_DRIVER = "run it on a machine with that GPU; here `nvidia-smi` must work first"


def _sku(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    chip = demand.sku.chip
    same = tuple(b for b in boards if (sku := _named(b.name)) and sku.chip == chip)
    finding = _finding(
        "sku",
        bool(same),
        f"{demand.sku.name} is {demand.sku.nvml_names[0]}, here is {_names(boards)}",
        "run it on a machine of that SKU, or write a spec for this board; `enginectl doctor` "
        "lists what this machine can do",
    )
    return finding, same


def _form_factor(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    sku = demand.sku
    named = tuple(b for b in boards if _named(b.name) == sku)
    others = sorted({other.name for b in boards if (other := _named(b.name)) is not None})
    form = f", {_FORMS[sku.form_factor]}" if sku.form_factor else ""
    finding = _finding(
        "form-factor",
        bool(named),
        f"{sku.name} is {sku.nvml_names[0]}{form}, here is {_names(boards)} ({', '.join(others)})",
        "same chip, other board: an engine tuned on one is slower on the other; use a machine with "
        "that board, or write a spec for this one",
    )
    return finding, named


def _sm(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    kept = tuple(b for b in boards if b.sm in {None, demand.sku.sm})
    found = ", ".join(sorted({f"SM {b.sm}" for b in boards if b.sm is not None})) or "not said"
    return _finding(
        "sm",
        bool(kept),
        f"{demand.sku.name} has SM {demand.sku.sm}, here is {found}",
        "the driver and the table of boards disagree: report this with `enginectl doctor`",
    ), kept


def _memory(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    kept = tuple(b for b in boards if _is(demand.sku, b))
    wanted = f"{demand.sku.memory_mib} MiB" if demand.sku.memory_mib else "any memory"
    return _finding(
        "memory",
        bool(kept),
        f"{demand.sku.name} has {wanted}, here is {_mib(boards)}",
        "a slice of a board (vGPU) or another board: use a whole one of that SKU",
    ), kept


def _mig(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    kept = tuple(b for b in boards if b.mig in _WHOLE)
    cut = ", ".join(f"GPU {b.index} {b.mig}" for b in boards if b.mig not in _WHOLE)
    return _finding(
        "mig",
        len(kept) >= min(demand.ranks, len(boards)),
        f"{demand.sku.name}: MIG must be off, here: {cut or 'off'}",
        f"use another machine, or `nvidia-smi -i {boards[0].index} -mig 0` when nobody needs the "
        "instances",
    ), kept


def _world_size(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    return _finding(
        "world-size",
        len(boards) >= demand.ranks,
        f"{demand.ranks} × {demand.sku.name} needed, {len(boards)} here",
        "use a machine with as many, or build with less parallelism",
    ), boards


def _free_memory(boards: tuple[Board, ...], demand: Demand) -> tuple[Finding, tuple[Board, ...]]:
    short = [says for board in boards if (says := lacks_memory(board, demand))]
    return _finding(
        "free-memory",
        len(boards) - len(short) >= demand.ranks,
        f"{demand.sku.name}: {'; '.join(short) or 'enough memory is free'}",
        "end what holds the memory (`nvidia-smi` lists it), then run the same command again",
        ExitCode.UNAVAILABLE,
    ), boards


def _is(sku: GpuSku, board: Board) -> bool:
    gpu = HostGpu(name=board.name, memory_mib=board.memory_mib, sm=board.sm)
    return matches_host(sku, _host(gpu)).fits


def _named(name: str) -> GpuSku | None:
    """The SKU that a driver means by a board's name; None for one that is not in the table."""
    found = skus_of_host(_host(HostGpu(name=name)))
    return next((sku for sku in found if isinstance(sku, GpuSku)), None)


def _host(gpu: HostGpu) -> Host:
    return Host(architecture="", flags=frozenset(), gpus=(gpu,))


def _names(boards: tuple[Board, ...]) -> str:
    counted = {board.name: sum(b.name == board.name for b in boards) for board in boards}
    return ", ".join(f"{count} × {name}" for name, count in counted.items())


def _mib(boards: tuple[Board, ...]) -> str:
    return ", ".join(f"{b.memory_mib} MiB" if b.memory_mib else "not said" for b in boards)


_REFERENCES = {
    "driver": "gpu-driver-unfit",
    "sku": "gpu-sku-differs",
    "form-factor": "gpu-form-factor-differs",
    "sm": "gpu-sm-differs",
    "memory": "gpu-memory-differs",
    "mig": "gpu-is-cut",
    "world-size": "gpus-too-few",
}


def _finding(
    rule: str, holds: bool, says: str, hint: str, exit_code: ExitCode = ExitCode.INCOMPATIBLE
) -> Finding:
    return Finding(
        rule=rule, holds=holds, says=says, hint="" if holds else hint, exit_code=exit_code
    )
