"""What this machine can build, serve and reach, and why not. Changes nothing but one probe file.

Three states: *usable*; *usable but not now*, where a person can change that on this machine today;
*not usable*, where the machine or this version cannot.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_pipeline.spec.hardware import CpuSku, find_sku, matches_host, sku_names
from engine_pipeline.spec.model import EngineKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_pipeline.build.machine import Machine
    from engine_pipeline.spec.hardware import Host

# Below this a build of even a small model fails half way; a spec's own need is checked by `build`.
_LITTLE_DISK_BYTES = 2_000_000_000
_INSTALL = "pip install 'engine-ci[llama-cpp]'"


class State(StrEnum):
    """How usable something is."""

    USABLE = "usable"
    NOT_NOW = "usable but not now"
    NOT_USABLE = "not usable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """One thing that was looked at.

    Attributes:
        reason: what was found.
        hint: how to get it; empty where there is nothing to do.
    """

    name: str
    state: State
    reason: str
    hint: str = ""


def targets(host: Host, tools_missing: str) -> list[Ability]:
    """Which SKUs this host can build for and serve: every CPU target, and the GPUs it has.

    Args:
        host: the machine.
        tools_missing: what the llama-cpp backend lacks; empty if it is complete.
    """
    found = []
    for name in sku_names():
        sku = find_sku(name)
        fit = matches_host(sku, host)
        if isinstance(sku, CpuSku) and fit.fits and tools_missing:
            found.append(_not_now(f"target {name}", tools_missing, _INSTALL))
        elif isinstance(sku, CpuSku) or fit.fits:
            state = State.USABLE if fit.fits else State.NOT_USABLE
            found.append(Ability(name=f"target {name}", state=state, reason=fit.reason))
    if not host.gpus:
        gpus = sum(not isinstance(find_sku(name), CpuSku) for name in sku_names())
        reason = "no NVIDIA GPU that this process can see"
        found.append(Ability(name=f"{gpus} GPU targets", state=State.NOT_USABLE, reason=reason))
    return found


def kinds(
    host: Host, available: tuple[str, ...], tools: Mapping[str, str], lacks: Mapping[str, str]
) -> list[Ability]:
    """Which engine kinds this version builds and serves here.

    Args:
        host: the machine.
        available: kinds that have a backend.
        tools: versions behind the llama-cpp kind.
        lacks: what is missing for `llama-cpp` (packages) and for `docker` (the daemon); empty
            texts where nothing is.
    """
    found = []
    for kind in EngineKind:
        name = f"kind {kind}"
        if kind not in available:
            reason = "no backend for it in this version"
            found.append(Ability(name=name, state=State.NOT_USABLE, reason=reason))
        elif kind is EngineKind.LLAMA_CPP:
            words = ", ".join(f"{package} {version}" for package, version in tools.items())
            found.append(
                _not_now(name, lacks["llama-cpp"], _INSTALL)
                if lacks["llama-cpp"]
                else Ability(name=name, state=State.USABLE, reason=words)
            )
        elif not host.gpus:
            reason = "needs an NVIDIA GPU; plans, locks and inspection work without one"
            found.append(Ability(name=name, state=State.NOT_USABLE, reason=reason))
        elif lacks["docker"]:
            hint = "start Docker, or use `enginectl build --runner local` in the toolkit's image"
            found.append(_not_now(name, lacks["docker"], hint))
        else:
            reason = "in the image that the spec names"
            found.append(Ability(name=name, state=State.USABLE, reason=reason))
    return found


def _not_now(name: str, reason: str, hint: str) -> Ability:
    return Ability(name=name, state=State.NOT_NOW, reason=reason, hint=hint)


def places(machine: Machine, cache_dir: Path, free_bytes: int) -> list[Ability]:
    """Whether there is room and memory to work in."""
    gib = 1 << 30
    memory = Ability(
        name="memory",
        state=State.USABLE,
        reason=f"{machine.ram_free_bytes / gib:.1f} of {machine.ram_bytes / gib:.1f} GiB free, "
        f"{machine.cores} cores",
    )
    little = free_bytes < _LITTLE_DISK_BYTES
    disk = Ability(
        name="step cache",
        state=State.NOT_NOW if little else State.USABLE,
        reason=f"{free_bytes / 1e9:.1f} GB free at {cache_dir}",
        hint="free some space, or set ENGINECTL_CACHE to another disk" if little else "",
    )
    return [memory, disk]


def hub(environment: Mapping[str, str]) -> Ability:
    """How model sources on a hub would be reached; asks nobody."""
    endpoint = environment.get("HF_ENDPOINT", "the default endpoint")
    if environment.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        reason = "HF_HUB_OFFLINE is set: only files that are in the cache already"
        return Ability(name="hub", state=State.NOT_NOW, reason=reason, hint="unset HF_HUB_OFFLINE")
    token = "a token is set" if environment.get("HF_TOKEN") else "no HF_TOKEN: public models only"
    return Ability(name="hub", state=State.USABLE, reason=f"{endpoint}; {token}")


def same_file_system(cache_dir: Path, registry_dir: Path | None) -> Ability:
    """Whether finished engines can be linked into the registry instead of copied."""
    name = "linking into the registry"
    if registry_dir is None or not registry_dir.is_dir():
        return Ability(
            name=name,
            state=State.NOT_NOW,
            reason="the registry is no directory that exists yet",
            hint="the first build creates it; ENGINECTL_REGISTRY=file:///directory says where",
        )
    if not os.access(registry_dir, os.W_OK):
        return Ability(
            name=name,
            state=State.NOT_NOW,
            reason=f"{registry_dir} is not writable for this user",
            hint="set ENGINECTL_REGISTRY to a directory of yours, or ask for write access",
        )
    return _try_link(name, cache_dir, registry_dir)


def _try_link(name: str, cache_dir: Path, registry_dir: Path) -> Ability:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache_dir) as probe:
            link = registry_dir / f"tmp-doctor-{os.getpid()}"
            os.link(probe.name, link)
            link.unlink()
    except OSError as error:
        return Ability(
            name=name,
            state=State.NOT_NOW,
            reason=f"engines will be copied: {error.strerror or error}",
            hint="put ENGINECTL_CACHE on the registry's file system to save the copy",
        )
    return Ability(
        name=name, state=State.USABLE, reason="engines enter the registry without a copy"
    )
