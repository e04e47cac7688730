"""This machine as a node for the rules of `compat.fit`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.compat.node import Node, NodeGpu
from engine_pipeline.nvml.inventory import Mig

if TYPE_CHECKING:
    from engine_pipeline.nvml.inventory import Inventory


def node_of(inventory: Inventory, *, name: str, architecture: str) -> Node:
    """What the driver says, as a node; which TensorRT serves there is for the caller to add.

    Args:
        inventory: of the machine.
        name: what people call it.
        architecture: as `uname -m` says it.
    """
    return Node(
        name=name,
        architecture=architecture,
        driver=inventory.driver,
        gpus=tuple(
            NodeGpu(
                name=board.name,
                uuid=board.uuid,
                sm=board.sm,
                memory_mib=board.memory_mib,
                free_mib=board.free_mib,
                mig=board.mig in {Mig.ON, Mig.TURNING_ON},
            )
            for board in inventory.boards
        ),
    )
