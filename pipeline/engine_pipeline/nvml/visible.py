"""Which boards CUDA_VISIBLE_DEVICES leaves to this process. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.nvml.inventory import Board

_BY_BUS = "PCI_BUS_ID"


def visible_boards(
    boards: tuple[Board, ...], devices: str | None, order: str | None
) -> tuple[Board, ...]:
    """The boards that the variable names, as CUDA reads it: all without one, none for `-1`.

    Args:
        boards: all of the machine.
        devices: CUDA_VISIBLE_DEVICES: UUIDs, unique beginnings of them, or numbers.
        order: CUDA_DEVICE_ORDER.

    Raises:
        InvalidInput: `gpu-number-ambiguous`: CUDA counts the fastest board first and the driver
            does not, so a number on a machine with different boards may mean either of two.
    """
    if devices is None:
        return boards
    chosen: list[Board] = []
    for item in (part.strip() for part in devices.split(",")):
        found = [b for b in boards if item and b.uuid.startswith(item)]
        if item.isdigit():
            _refuse_ambiguous(boards, item, order)
            found = [b for b in boards if b.index == int(item)]
        if len(found) != 1 or found[0] in chosen:
            # CUDA ignores the first name that it does not know, and all after it.
            break
        chosen.append(found[0])
    return tuple(chosen)


def _refuse_ambiguous(boards: tuple[Board, ...], item: str, order: str | None) -> None:
    names = sorted({board.name for board in boards})
    if len(names) > 1 and order != _BY_BUS:
        raise InvalidInput(
            f"CUDA_VISIBLE_DEVICES names GPU {item} by number, and there are different boards "
            f"here: {', '.join(names)}",
            hint="name it by UUID (`nvidia-smi -L`), or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
            reference="gpu-number-ambiguous",
        )
