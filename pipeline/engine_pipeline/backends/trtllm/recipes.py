"""Recipes: how weights and KV cache are stored, and which tool makes them so. Pure.

The table is `recipes.json`, which names its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine_pipeline.tables import table_beside

if TYPE_CHECKING:
    from engine_pipeline.spec.model import CachePrecision, PrecisionSpec, WeightPrecision

# Where convert_checkpoint.py only casts.
PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A scheme for weights.

    Attributes:
        quant_algo: what checkpoint and engine call it; None for 16-bit weights.
        qformat: what `quantize.py` calls it; None where that tool cannot make it.
        convert: what `convert_checkpoint.py` calls it; None where that tool cannot make it.
        dtype: of whatever is not quantised, the default first.
        logits_dtype: of the logits, as a checkpoint of this scheme has it.
        fused_mlp: the builder can fuse the MLP.
        calibrates: scales come from calibration data.
        awq: calibration stops at `awq_samples()` samples, whatever is asked.
        group: weights have scales per group of columns.
        fp8_gemm: both sides of a GEMM are FP8.
        quantised_source: the scheme that the source itself must be in.
        min_sm: least compute capability.
        families: the only model families it works for; empty means all.
    """

    name: str
    weights: str
    quant_algo: str | None
    qformat: str | None = None
    convert: str | None = None
    dtype: tuple[str, ...]
    logits_dtype: str
    gemm_plugin: str
    fused_mlp: bool
    calibrates: bool = False
    awq: bool = False
    group: bool = False
    fp8_gemm: bool = False
    quantised_source: str | None = None
    min_sm: int = 0
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """How the KV cache is stored.

    Attributes:
        quant_algo: what checkpoint and engine call it; None if it has the activations' type.
        flag: value of `--kv_cache_dtype`; None needs no flag.
        dtype: the activations' type that a cache of this precision implies; None is any.
    """

    quant_algo: str | None
    flag: str | None
    dtype: str | None


def recipe_called(name: str) -> Recipe | None:
    """The recipe of this name, if there is one."""
    return _recipes().get(name)


def recipes_of(weights: WeightPrecision) -> tuple[str, ...]:
    """Names of the recipes that store weights this way, the default first."""
    default = _table()["defaults"].get(str(weights))
    names = [name for name, recipe in _recipes().items() if recipe.weights == weights]
    return tuple(sorted(names, key=lambda name: name != default))


def recipe_for(precision: PrecisionSpec) -> Recipe:
    """The recipe a spec means; `check` has made sure that there is one."""
    return _recipes()[precision.recipe or recipes_of(precision.weights)[0]]


def cache_format(precision: CachePrecision) -> CacheFormat:
    """How a KV cache of this precision is asked for and told."""
    return CacheFormat(**_table()["kv_cache"][str(precision)])


def qformats_of(version: str) -> frozenset[str]:
    """What `quantize.py` of this release offers."""
    table = _table()
    return frozenset(table["qformats"][table["qformats_of"][version]])


def awq_samples() -> int:
    """How many calibration samples AWQ really uses, whatever is asked."""
    samples: int = _table()["awq_samples"]
    return samples


def uses_quantize(recipe: Recipe, cache: CacheFormat) -> bool:
    """Whether `quantize.py` makes the checkpoint; otherwise `convert_checkpoint.py` does.

    A quantised KV cache needs scales, which only the former takes from data for every family.
    """
    return recipe.convert is None or (cache.flag is not None and recipe.qformat is not None)


def needs_calibration(recipe: Recipe, cache: CacheFormat) -> bool:
    """Whether scales come from data."""
    return recipe.calibrates or cache.flag is not None


def paged_context_fmha(recipe: Recipe, cache: CacheFormat) -> bool:
    """Whether the builder accepts paged context FMHA; see `recipes.json`, sources."""
    if cache.flag is None:
        return True
    return cache.flag == "fp8" and recipe.fp8_gemm


@cache
def _recipes() -> dict[str, Recipe]:
    return {name: _recipe(name, row) for name, row in _table()["recipes"].items()}


def _recipe(name: str, row: dict[str, Any]) -> Recipe:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    return Recipe(name=name, **values)


def _table() -> dict[str, Any]:
    return table_beside(__file__, "recipes.json")
