"""Boards that this machine does not have, for the code that asks the driver.

The answers in tests/data/nvml have the form in which NVML gives them. They are written from the
names, sizes and versions that NVIDIA documents, not recorded on hardware.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine_pipeline.nvml.inventory import Board, Inventory, inventory_of

DATA = Path(__file__).resolve().parents[1] / "data" / "nvml"
RECORDINGS = tuple(sorted(path.stem for path in DATA.glob("*.json")))
_FAKE_NVML = Path(__file__).with_name("fake_nvml")


def answers(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_bytes())
    return found


def recorded(name: str) -> Inventory:
    return inventory_of(answers(name))


def environment(name: str) -> dict[str, str]:
    """What makes a process of this project see the boards of a recording."""
    return {"PYTHONPATH": str(_FAKE_NVML), "FAKE_NVML": str(DATA / f"{name}.json")}


class FakeGpus:
    """A `GpuReader` whose boards can be changed while somebody looks."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    def read(self) -> Inventory:
        return self.inventory

    def change(self, index: int, **changes: Any) -> None:
        """Change the board of that index."""
        boards: tuple[Board, ...] = tuple(
            board.model_copy(update=changes) if board.index == index else board
            for board in self.inventory.boards
        )
        self.inventory = self.inventory.model_copy(update={"boards": boards})
