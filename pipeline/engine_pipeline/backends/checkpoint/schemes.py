"""Quantisation schemes of pre-quantised checkpoints. Pure; the table is `schemes.json`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine_pipeline.tables import table_beside

if TYPE_CHECKING:
    from engine_pipeline.spec.model import CachePrecision, PrecisionSpec, WeightPrecision

MIXED = "MIXED_PRECISION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a checkpoint's weights are stored.

    Attributes:
        weights: precisions of a spec that this scheme can mean.
        quant_algo: what the checkpoint calls it; None for 16-bit weights.
        min_sm: least compute capability.
    """

    name: str
    weights: tuple[str, ...]
    quant_algo: str | None
    min_sm: int


def scheme_called(name: str) -> Scheme | None:
    """The scheme of this name, if there is one."""
    return _schemes().get(name)


def schemes_of(weights: WeightPrecision) -> tuple[str, ...]:
    """Names of the schemes for weights of this precision, the default first."""
    default = _table()["defaults"].get(str(weights))
    names = [name for name, scheme in _schemes().items() if weights in scheme.weights]
    return tuple(sorted(names, key=lambda name: name != default))


def scheme_for(precision: PrecisionSpec) -> Scheme:
    """The scheme a spec means; `check` has made sure that there is one."""
    return _schemes()[precision.recipe or schemes_of(precision.weights)[0]]


def cache_algo(precision: CachePrecision) -> str | None:
    """What a checkpoint calls a KV cache of this precision; None if it is not quantised."""
    algo: str | None = _table()["kv_cache"].get(str(precision))
    return algo


def known_algos() -> frozenset[str]:
    """Every scheme that a layer of a mixed checkpoint may have."""
    return frozenset(
        scheme.quant_algo
        for scheme in _schemes().values()
        if scheme.quant_algo not in (None, MIXED)
    )


@cache
def _schemes() -> dict[str, Scheme]:
    return {
        name: Scheme(
            name=name,
            weights=tuple(row["weights"]),
            quant_algo=row["quant_algo"],
            min_sm=row["min_sm"],
        )
        for name, row in _table()["schemes"].items()
    }


def _table() -> dict[str, Any]:
    return table_beside(__file__, "schemes.json")
