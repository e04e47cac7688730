"""The node that loads a target's engine: this machine, or one that a file describes."""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.compat.fit import TENSORRT, TENSORRT_LLM, decide_fit
from engine_pipeline.compat.node import Node
from engine_pipeline.nvml.node import node_of
from engine_pipeline.promote.findings import Finding
from engine_pipeline.spec.hardware import CpuSku, find_sku, matches_host
from engine_registry.errors import ExitCode, InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.build.machine import Machine
    from engine_registry.record import Platform


def fit_on_machine(
    platform: Platform, machine: Machine, *, serves_its_image: bool
) -> tuple[Finding, ...]:
    """What the rules say of loading an engine of this platform on this machine.

    Args:
        platform: of the release.
        machine: where the target is.
        serves_its_image: what loads the engine is the release's own image, so it has the versions
            the engine was built with; a server that runs already has to be described.
    """
    sku = find_sku(platform.sku)
    if isinstance(sku, CpuSku):
        fit = matches_host(sku, machine.host)
        return (
            Finding(
                rule="sku",
                holds=fit.fits,
                says=fit.reason,
                hint="" if fit.fits else "deploy from the machine that serves",
                exit_code=ExitCode.INCOMPATIBLE,
            ),
        )
    name, architecture = gethostname(), machine.host.architecture
    node = Node(name=name, architecture=architecture)
    if machine.inventory is not None:
        node = node_of(machine.inventory, name=name, architecture=architecture)
    if serves_its_image:
        versions = {
            "tensorrt": platform.tensorrt or platform.runtime.get(TENSORRT),
            "tensorrt_llm": platform.runtime.get(TENSORRT_LLM),
        }
        node = node.model_copy(update=versions)
    return decide_fit(platform, node)


def read_node(path: Path) -> Node:
    """The node that a JSON file describes.

    Raises:
        NotFound: no such file.
        InvalidInput: reference `node-invalid`, with the field.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"{path}: no description of a node",
            hint="write one, or leave `node` out where this machine serves",
            reference="node-missing",
        ) from error
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be read: {error.strerror}",
            hint="name a JSON file that describes the node",
            reference="node-invalid",
        ) from error
    try:
        return Node.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise InvalidInput(
            f"{path}: {where}: {first['msg']}",
            hint="fields: name, architecture, gpus, driver, tensorrt, tensorrt_llm",
            reference="node-invalid",
        ) from error
