"""A node that shall load engines: its boards, its driver and what is installed there. Pure.

Made from the driver's answers on the machine itself, or read from a JSON file that describes
another one. What a description leaves out is not known, and nothing is concluded from it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine_pipeline.spec.hardware import Host, HostGpu
from engine_registry.documents import Document, Value


class NodeGpu(Value):
    """One board.

    Attributes:
        name: as the driver says it, e.g. `NVIDIA H100 80GB HBM3`.
        sm: compute capability as major*10+minor.
        memory_mib: all of it; `free_mib` what no process holds now.
        mig: the board is cut into instances; an engine needs a whole one.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    uuid: str | None = None
    sm: int | None = None
    memory_mib: Annotated[int | None, Field(ge=0)] = None
    free_mib: Annotated[int | None, Field(ge=0)] = None
    mig: bool = False


class Node(Document):
    """What a machine says about itself, or somebody about it.

    Attributes:
        name: for people, e.g. its host name.
        architecture: as `uname -m` says it.
        driver: version of the NVIDIA driver.
        tensorrt, tensorrt_llm: of the image or installation that will serve.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)] = "this node"
    architecture: str | None = None
    gpus: tuple[NodeGpu, ...] = ()
    driver: str | None = None
    tensorrt: str | None = None
    tensorrt_llm: str | None = None

    @property
    def at_rest(self) -> Node:
        """The node with nothing on its boards: what is free just now is left out."""
        return self.model_copy(
            update={"gpus": tuple(gpu.model_copy(update={"free_mib": None}) for gpu in self.gpus)}
        )

    @property
    def host(self) -> Host:
        """The part that decides which SKUs it is; boards that are cut up do not count."""
        return Host(
            architecture=self.architecture or "",
            flags=frozenset(),
            gpus=tuple(
                HostGpu(name=gpu.name, memory_mib=gpu.memory_mib, sm=gpu.sm)
                for gpu in self.gpus
                if not gpu.mig
            ),
        )
