"""The node that loads a target's engine: this machine, or one that a file describes."""

from __future__ import annotations

import json
from socket import gethostname
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.compat.fit import STRICT, TENSORRT, TENSORRT_LLM, decide_fit
from engine_pipeline.compat.node import Node
from engine_pipeline.nvml.node import node_of
from engine_pipeline.promote.findings import Finding
from engine_pipeline.promote.nodes import memory_to_load
from engine_pipeline.spec.hardware import CpuSku, find_sku, matches_host
from engine_registry.errors import ExitCode, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_pipeline.build.machine import Machine
    from engine_pipeline.compat.fit import FitPolicy
    from engine_registry.record import Platform, Release
    from engine_registry.registry import Registry


def fit_of_release(
    registry: Registry, place: Machine | Node, *, accepts: FitPolicy, serves_its_image: bool
) -> Callable[[Release], tuple[Finding, ...]]:
    """What says of a release whether its engine loads where a target is.

    Args:
        registry: of the release.
        place: this machine, or the described node that serves.
        accepts: what the channel's policy accepts untested.
        serves_its_image: see `fit_on_machine`.
    """

    def fit(release: Release) -> tuple[Finding, ...]:
        content = release.content
        needed = memory_to_load(registry, content.engine, content.record)
        if isinstance(place, Node):
            # What is served there now makes room.
            return decide_fit(content.platform, place.at_rest, policy=accepts, needed_bytes=needed)
        return fit_on_machine(
            content.platform,
            place,
            serves_its_image=serves_its_image,
            is_busy=True,
            policy=accepts,
            needed_bytes=needed,
        )

    return fit


def node_of_machine(machine: Machine) -> Node:
    """This machine as a node; which TensorRT serves on it is not known from the machine."""
    name, architecture = gethostname(), machine.host.architecture
    if machine.inventory is None:
        return Node(name=name, architecture=architecture)
    return node_of(machine.inventory, name=name, architecture=architecture)


def fit_on_machine(
    platform: Platform,
    machine: Machine,
    *,
    serves_its_image: bool,
    is_busy: bool = False,
    policy: FitPolicy = STRICT,
    needed_bytes: int | None = None,
) -> tuple[Finding, ...]:
    """What the rules say of loading an engine of this platform on this machine.

    Args:
        platform: of the release.
        machine: where the target is.
        serves_its_image: what loads the engine is the release's own image, so it has the versions
            the engine was built with; a server that runs already has to be described.
        is_busy: what holds memory of the boards now makes room for the engine.
        policy: what is accepted untested.
        needed_bytes: memory of one rank; None leaves the rule out.
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
    node = node_of_machine(machine)
    if is_busy:
        node = node.at_rest
    if serves_its_image:
        versions = {
            "tensorrt": platform.tensorrt or platform.runtime.get(TENSORRT),
            "tensorrt_llm": platform.runtime.get(TENSORRT_LLM),
        }
        node = node.model_copy(update=versions)
    return decide_fit(platform, node, policy=policy, needed_bytes=needed_bytes)


def write_node(machine: Machine, path: Path) -> None:
    """Describe this machine in a new file: its boards and driver, not what is on them now.

    Raises:
        InvalidInput: reference `node-not-written`.
    """
    described = node_of_machine(machine).at_rest.model_dump(mode="json", exclude_none=True)
    try:
        with path.open("x") as stream:
            stream.write(json.dumps(described, indent=2) + "\n")
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be written: {error.strerror}",
            hint="name a file that does not exist, in a directory that does",
            reference="node-not-written",
        ) from error


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
