"""Targets: what each SKU is, how a host shows that it is one, and what it can do. Pure.

The table is `hardware.json`, which names its sources. A PCIe, an SXM and an NVL board are different
SKUs, even with the same chip: an engine tuned on one is slower on the other and its measurements
do not carry over.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engine_pipeline.spec.model import CachePrecision, EngineKind, WeightPrecision
from engine_pipeline.tables import table_beside
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_pipeline.spec.model import BuildSpec

# Drivers reserve a little and ECC takes some; 80 and 94 GB boards stay apart.
_MEMORY_TOLERANCE = 0.04
_LISTED = 8
_FORM_FACTORS = ("sxm", "pcie", "nvl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What one engine kind can do on one SKU."""

    weights: tuple[WeightPrecision, ...]
    kv_cache: tuple[CachePrecision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSku:
    """A GPU board.

    Attributes:
        nvml_names: what the driver calls it.
        sm: compute capability as major*10+minor.
        memory_mib: as the driver reports it; None where it reports none.
        kinds: engine kinds that run there.
    """

    name: str
    nvml_names: tuple[str, ...]
    sm: int
    memory_mib: int | None
    kinds: Mapping[EngineKind, Abilities]

    @property
    def chip(self) -> str:
        """What boards of several forms share: `h100` of `h100-sxm-80gb`."""
        return self.name.partition("-")[0]

    @property
    def form_factor(self) -> str | None:
        """`sxm`, `pcie` or `nvl`; None for a chip that there is on one kind of board only."""
        return next((part for part in self.name.split("-") if part in _FORM_FACTORS), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSku:
    """A CPU instruction set.

    Attributes:
        architecture: as `uname -m` says it.
        flags: what /proc/cpuinfo must list.
        kinds: engine kinds that run there.
    """

    name: str
    architecture: str
    flags: frozenset[str]
    kinds: Mapping[EngineKind, Abilities]


Sku = GpuSku | CpuSku


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpu:
    """One GPU as the driver reports it; None for what it does not say."""

    name: str
    memory_mib: int | None = None
    sm: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a machine says about itself.

    Attributes:
        architecture: as `uname -m` says it.
        flags: `flags` or `Features` of /proc/cpuinfo.
        gpus: all that this process may use.
    """

    architecture: str
    flags: frozenset[str]
    gpus: tuple[HostGpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a host can build for and serve a SKU.

    Attributes:
        reason: one line; both sides where it does not fit.
    """

    fits: bool
    reason: str


def sku_names() -> tuple[str, ...]:
    """All SKUs, in the order of the table."""
    return tuple(_skus())


def find_sku(name: str) -> Sku:
    """The SKU called `name`.

    Raises:
        InvalidInput: reference `unknown-sku`, with the nearest names.
    """
    sku = _skus().get(name)
    if sku is not None:
        return sku
    near = difflib.get_close_matches(name, _skus(), n=3, cutoff=0.5)
    near += [known for known in _skus() if known.partition("-")[0] == name.partition("-")[0]]
    meant = list(dict.fromkeys(near))[:_LISTED]
    suggestion = f"did you mean {' or '.join(meant)}?" if meant else "nothing known is near"
    raise InvalidInput(
        f"unknown SKU {name!r}; {suggestion}",
        hint="write a board with form factor and memory, such as h100-sxm-80gb, or a CPU target: "
        + ", ".join(n for n, s in _skus().items() if isinstance(s, CpuSku)),
        reference="unknown-sku",
    )


def refuse_impossible(spec: BuildSpec) -> None:
    """Refuse a precision or kind that the spec's SKU cannot do, before anything expensive.

    Raises:
        InvalidInput: reference `unknown-sku`.
        Incompatible: `kind-not-on-sku` or `precision-not-on-sku`; names what works there and
            where the wish would work.
    """
    sku, kind = find_sku(spec.target.sku), spec.backend.kind
    abilities = sku.kinds.get(kind)
    if abilities is None:
        raise Incompatible(
            f"{kind} on {_title(sku)}: not possible; kinds that work there: {_listed(sku.kinds)}",
            hint=f"set backend.kind to one of them, or target.sku to one that has {kind}: "
            + _listed(other.name for other in _of_kind(kind)),
            reference="kind-not-on-sku",
        )
    weights, cache = spec.precision.weights, spec.precision.kv_cache
    if weights not in abilities.weights:
        raise _impossible(
            f"{weights} weights with {kind} on {_title(sku)}",
            "precision.weights",
            abilities.weights,
            [s.name for s in _of_kind(kind) if weights in s.kinds[kind].weights],
        )
    if cache not in abilities.kv_cache:
        raise _impossible(
            f"{cache} KV cache with {kind} on {_title(sku)}",
            "precision.kv_cache",
            abilities.kv_cache,
            [s.name for s in _of_kind(kind) if cache in s.kinds[kind].kv_cache],
        )


def matches_host(sku: Sku, host: Host, ranks: int = 1) -> Fit:
    """Whether `host` is what `sku` names.

    Args:
        sku: the target.
        host: the machine.
        ranks: how many such GPUs are needed; no meaning for a CPU.
    """
    if isinstance(sku, CpuSku):
        return _fits_cpu(sku, host)
    if not host.gpus:
        return Fit(fits=False, reason=f"{sku.name} needs {sku.nvml_names[0]}, this host has no GPU")
    misfits = [_gpu_misfit(sku, gpu) for gpu in host.gpus]
    fitting = misfits.count("")
    if fitting >= ranks:
        return Fit(fits=True, reason=f"{fitting} × {sku.nvml_names[0]}")
    if not fitting:
        return Fit(fits=False, reason=f"{sku.name} needs {misfits[0]}")
    return Fit(fits=False, reason=f"{sku.name}: needs {ranks} such GPUs, this host has {fitting}")


def skus_of_host(host: Host) -> tuple[Sku, ...]:
    """Every SKU that `host` can serve, in the order of the table."""
    return tuple(sku for sku in _skus().values() if matches_host(sku, host).fits)


def _fits_cpu(sku: CpuSku, host: Host) -> Fit:
    if host.architecture != sku.architecture:
        return Fit(
            fits=False,
            reason=f"{sku.name} needs {sku.architecture}, this host is {host.architecture}",
        )
    missing = sorted(sku.flags - host.flags)
    if missing:
        return Fit(
            fits=False,
            reason=f"{sku.name} needs {', '.join(missing)}, which this CPU does not have",
        )
    return Fit(fits=True, reason=f"this CPU has all {len(sku.flags)} flags of {sku.name}")


def _gpu_misfit(sku: GpuSku, gpu: HostGpu) -> str:
    """What is wanted and what is there; empty if the GPU is one of that SKU."""
    if _plain(gpu.name) not in {_plain(name) for name in sku.nvml_names}:
        return f"{sku.nvml_names[0]}, this host has {gpu.name}"
    if gpu.sm is not None and gpu.sm != sku.sm:
        return f"compute capability {sku.sm}, this {gpu.name} has {gpu.sm}"
    if gpu.memory_mib is not None and sku.memory_mib is not None:
        apart = abs(gpu.memory_mib - sku.memory_mib) / sku.memory_mib
        if apart > _MEMORY_TOLERANCE:
            return f"{sku.memory_mib} MiB, this {gpu.name} has {gpu.memory_mib} MiB"
    return ""


def _plain(name: str) -> str:
    # Older drivers leave the vendor out and spell PCIe in several ways.
    return " ".join(name.lower().removeprefix("nvidia ").split())


def _title(sku: Sku) -> str:
    return f"{sku.name} (SM {sku.sm})" if isinstance(sku, GpuSku) else sku.name


def _of_kind(kind: EngineKind) -> list[Sku]:
    return [sku for sku in _skus().values() if kind in sku.kinds]


def _impossible(wish: str, field: str, works: Iterable[str], elsewhere: list[str]) -> Incompatible:
    move = f", or target.sku to one that can: {_listed(elsewhere)}" if elsewhere else ""
    return Incompatible(
        f"{wish}: not possible; what works there: {_listed(works)}",
        hint=f"set {field} to one of those{move}",
        reference="precision-not-on-sku",
    )


def _listed(names: Iterable[str]) -> str:
    items = [str(name) for name in names]
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return ", ".join(items[:_LISTED]) + more


@cache
def _skus() -> dict[str, Sku]:
    table = table_beside(__file__, "hardware.json")
    profiles = {
        name: {
            EngineKind(kind): Abilities(
                weights=tuple(WeightPrecision(item) for item in row["weights"]),
                kv_cache=tuple(CachePrecision(item) for item in row["kv_cache"]),
            )
            for kind, row in kinds.items()
        }
        for name, kinds in table["profiles"].items()
    }
    gpus: list[Sku] = [
        GpuSku(
            name=row["sku"],
            nvml_names=tuple(row["nvml_names"]),
            sm=row["sm"],
            memory_mib=row["memory_mib"],
            kinds=profiles[row["profile"]],
        )
        for row in table["gpus"]
    ]
    cpus: list[Sku] = [
        CpuSku(
            name=row["sku"],
            architecture=row["architecture"],
            flags=frozenset(row["flags"]),
            kinds=profiles[row["profile"]],
        )
        for row in table["cpus"]
    ]
    return {sku.name: sku for sku in gpus + cpus}
