"""Will this engine load on that node: one finding per rule, each with both sides. Pure.

    sku           the board the engine was built and measured on
    sm            compute capability: a plan for another one never loads
    world-size    as many such boards as the engine has ranks
    driver        at least the one that goes with the release's CUDA toolkit
    tensorrt      exactly the version in the plan's header: TensorRT-LLM sets no compatibility flag
    tensorrt-llm  exactly the version that built it: its plugins are serialised in the plan
    memory        weights, activations and one sequence

The runtime itself only warns about another board of the same capability, and never compares its own
version with the engine's (gptJsonConfig.cpp logs it). So both are rules here. What a node does not
say breaks the rule that needs it: a guess would be found out at load time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_pipeline.compat.node import Node
from engine_pipeline.compat.releases import find_release, same_version, version_parts
from engine_pipeline.promote.findings import Finding
from engine_pipeline.spec.hardware import CpuSku, GpuSku, find_sku, matches_host, skus_of_host
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_pipeline.compat.node import NodeGpu
    from engine_registry.record import Platform

TENSORRT = "tensorrt"
TENSORRT_LLM = "tensorrt_llm"
_ACCEPTED = ", accepted by policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPolicy:
    """What a site accepts although it is not tested.

    Attributes:
        same_sm_other_sku: another board of the same compute capability: it loads with a warning
            and is slower or faster than what was measured.
        older_driver: a driver below the release's own, through CUDA's forward compatibility.
    """

    same_sm_other_sku: bool = False
    older_driver: bool = False


STRICT = FitPolicy()


class Untested(StrEnum):
    """What a channel may accept, by the names that `channels.yaml` has for it."""

    SAME_SM_OTHER_SKU = "same-sm-other-sku"
    OLDER_DRIVER = "older-driver"


def accepting(names: Iterable[Untested]) -> FitPolicy:
    """The policy that accepts these and nothing else."""
    accepted = frozenset(names)
    return FitPolicy(
        same_sm_other_sku=Untested.SAME_SM_OTHER_SKU in accepted,
        older_driver=Untested.OLDER_DRIVER in accepted,
    )


def decide_fit(
    platform: Platform,
    node: Node,
    *,
    policy: FitPolicy = STRICT,
    needed_bytes: int | None = None,
) -> tuple[Finding, ...]:
    """Every rule that applies to the engine's platform, in the order above.

    Args:
        platform: of the engine's record or release.
        node: where it shall be loaded.
        policy: what is accepted untested.
        needed_bytes: memory of one rank; None leaves the rule out.
    """
    sku = find_sku(platform.sku)
    if isinstance(sku, CpuSku):
        fit = matches_host(sku, node.host)
        return (_finding("sku", fit.fits, fit.reason, "choose a node of that instruction set"),)
    findings = [
        _sku(sku, node, policy),
        _sm(sku, platform, node),
        _world_size(sku, platform, node, policy),
    ]
    release = platform.runtime.get(TENSORRT_LLM)
    if release is not None:
        findings.append(_driver(release, node, policy))
    if (tensorrt := platform.tensorrt or platform.runtime.get(TENSORRT)) is not None:
        findings.append(_version("tensorrt", "TensorRT", tensorrt, node.tensorrt))
    if release is not None:
        findings.append(_version("tensorrt-llm", "TensorRT-LLM", release, node.tensorrt_llm))
    if needed_bytes is not None:
        findings.append(_memory(needed_bytes, sku, node, platform.parallelism.world_size, policy))
    return tuple(findings)


def sum_up(node: Node, findings: tuple[Finding, ...]) -> Finding:
    """One finding for a whole node, called `fit`: what is broken, or what policy had to accept."""
    broken = [finding for finding in findings if not finding.holds]
    if broken:
        says = "; ".join(f"{finding.rule}: {finding.says}" for finding in broken)
        return _finding("fit", False, f"node {node.name}: {says}", broken[0].hint)
    accepted = "".join(f"; {f.says}" for f in findings if f.says.endswith(_ACCEPTED))
    rules = ", ".join(finding.rule for finding in findings)
    return _finding("fit", True, f"node {node.name} fits by {rules}{accepted}", "")


def _sku(sku: GpuSku, node: Node, policy: FitPolicy) -> Finding:
    fit = matches_host(sku, node.host)
    if fit.fits:
        return _finding("sku", True, f"engine was built for {sku.name}, {node.name} is one", "")
    others = [found.name for found in skus_of_host(node.host) if isinstance(found, GpuSku)]
    theirs = ", ".join(others) or ", ".join(gpu.name for gpu in node.gpus) or "no GPU"
    cut = ", cut into MIG instances" if any(gpu.mig for gpu in node.gpus) else ""
    says = f"engine was built for {sku.name}, {node.name} has {theirs}{cut}"
    if _usable(sku, node, policy):
        return _finding("sku", True, f"{says}: same SM {sku.sm}{_ACCEPTED}", "")
    same = any(_sm_of(gpu) == sku.sm for gpu in node.gpus if not gpu.mig)
    return _finding(
        "sku",
        False,
        f"{says}: same SM {sku.sm}, so it would load with a warning only" if same else says,
        f"build the spec for the node's board, or choose a node with {sku.nvml_names[0]}",
    )


def _sm(sku: GpuSku, platform: Platform, node: Node) -> Finding:
    wanted = platform.sm or sku.sm
    found = sorted({sm for gpu in node.gpus if (sm := _sm_of(gpu)) is not None})
    return _finding(
        "sm",
        wanted in found,
        f"engine was built for SM {wanted}, {node.name} has "
        + (", ".join(f"SM {sm}" for sm in found) if found else "no GPU whose SM is known"),
        "a plan never loads on another compute capability: build the spec for that board",
    )


def _world_size(sku: GpuSku, platform: Platform, node: Node, policy: FitPolicy) -> Finding:
    ranks, boards = platform.parallelism.world_size, len(_usable(sku, node, policy))
    return _finding(
        "world-size",
        boards >= ranks,
        f"engine has {ranks} rank(s), {node.name} has {boards} board(s) for it",
        "choose a node with as many boards, or build the spec with less parallelism",
    )


def _driver(release: str, node: Node, policy: FitPolicy) -> Finding:
    known = find_release(release)
    least = known.driver if known else None
    if least is None:
        return _finding(
            "driver",
            node.driver is not None,
            f"no least driver is known for TensorRT-LLM {release}, {node.name} has "
            f"{node.driver or 'none that it names'}",
            "state `driver` in the node's description",
        )
    says = f"TensorRT-LLM {release} goes with driver {least}, {node.name} has"
    if node.driver is None:
        return _finding(
            "driver", False, f"{says} none that it names", "state `driver` in its description"
        )
    if version_parts(node.driver) >= version_parts(least):
        return _finding("driver", True, f"{says} {node.driver}", "")
    if policy.older_driver:
        return _finding("driver", True, f"{says} {node.driver}: older{_ACCEPTED}", "")
    return _finding("driver", False, f"{says} {node.driver}", f"install driver {least} or newer")


def _version(rule: str, name: str, built: str, found: str | None) -> Finding:
    return _finding(
        rule,
        found is not None and same_version(built, found) and same_version(found, built),
        f"engine was built with {name} {built}, the node serves with {found or 'one not named'}",
        f"serve with the image that has {name} {built}"
        if found
        else f"state `{rule.replace('-', '_')}` in the node's description: what its image has",
    )


def _memory(needed_bytes: int, sku: GpuSku, node: Node, ranks: int, policy: FitPolicy) -> Finding:
    free = sorted(
        (mib for gpu in _usable(sku, node, policy) if (mib := _free_mib(gpu)) is not None),
        reverse=True,
    )
    needed = -(-needed_bytes // (1 << 20))
    least = free[ranks - 1] if len(free) >= ranks else None
    there = f"{least} MiB free on each of {ranks} board(s)" if least is not None else "none known"
    return _finding(
        "memory",
        least is not None and least >= needed,
        f"a rank needs {needed} MiB, {node.name} has {there}",
        "end what holds the memory, or choose a node with more; `enginectl capacity` shows the sum",
    )


def _usable(sku: GpuSku, node: Node, policy: FitPolicy) -> list[NodeGpu]:
    """Boards that may hold a rank: of that SKU or, where policy allows it, of its capability."""
    whole = [gpu for gpu in node.gpus if not gpu.mig]
    exact = [gpu for gpu in whole if _is(sku, gpu, node)]
    if exact or not policy.same_sm_other_sku:
        return exact
    return [gpu for gpu in whole if _sm_of(gpu) == sku.sm]


def _is(sku: GpuSku, gpu: NodeGpu, node: Node) -> bool:
    alone = node.model_copy(update={"gpus": (gpu,)})
    return matches_host(sku, alone.host).fits


def _sm_of(gpu: NodeGpu) -> int | None:
    """What the board says or, if it says nothing, what a board of that name has."""
    if gpu.sm is not None:
        return gpu.sm
    known = [s.sm for s in skus_of_host(Node(gpus=(gpu,)).host) if isinstance(s, GpuSku)]
    return known[0] if known else None


def _free_mib(gpu: NodeGpu) -> int | None:
    return gpu.free_mib if gpu.free_mib is not None else gpu.memory_mib


def _finding(rule: str, holds: bool, says: str, hint: str) -> Finding:
    return Finding(
        rule=rule,
        holds=holds,
        says=says,
        hint="" if holds else hint,
        exit_code=ExitCode.INCOMPATIBLE,
    )
