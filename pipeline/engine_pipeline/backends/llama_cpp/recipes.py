"""Which ggml type each tensor gets under each recipe. Pure.

    recipe   weights            output matrix   note
    f16      F16                F16             the parent that quantised engines are compared with
    q8_0     Q8_0               Q8_0            8.5 bits a weight
    q4_1     Q4_1               Q8_0            5 bits a weight; INT4's default
    q4_0     Q4_0               Q8_0            4.5 bits a weight
    q4_k_m   Q4_K, some Q6_K    Q6_K            needs rows that are multiples of 256

INT4 means q4_1 unless the spec says otherwise. Measured on SmolLM2-135M-Instruct against its F16
engine (24 prompts, 1311 positions, teacher-forced top-1 agreement): Q8_0 96.8 %, Q4_1 96.3 %,
Q4_K_M mix 87.9 %, Q4_0 75.3 %; and Q4_1, unlike the mix, answers alike at every concurrency.

Vectors stay F32. The output matrix (the embedding where they are tied) decides every token, so the
4-bit recipes keep it at 8 bits. Which layers of q4_k_m get Q6_K follows llama.cpp's own quantiser
(src/llama-quant.cpp), and so do the types that rows of other lengths fall back to.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.spec.model import WeightPrecision

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader

OUTPUT = "output.weight"
EMBEDDING = "token_embd.weight"
# Block lengths of the types named here (ggml): a row must be a multiple.
BLOCKS = {"Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q8_0": 32, "Q4_K": 256, "Q6_K": 256}
_FALLBACK = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
VECTOR = "F32"
PLAIN = "F16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A quantisation scheme.

    Attributes:
        file_type: llama.cpp's number for `general.file_type` (include/llama.h, `llama_ftype`).
        weights: type of matrices.
        output: type of the output matrix.
        deep: type of the matrices that a mixed recipe stores more exactly; None if not mixed.
        bits: bits a weight, for estimates.
    """

    name: str
    precision: WeightPrecision
    file_type: int
    weights: str
    output: str
    deep: str | None = None
    bits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one tensor should be and what its shape lets it be."""

    wanted: str
    given: str
    row: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Fallback:
    """Matrices that got another type than their recipe promises, and why."""

    wanted: str
    given: str
    count: int
    rows: tuple[int, ...]

    def __str__(self) -> str:
        rows = ", ".join(str(row) for row in self.rows)
        return f"{self.count} × {self.given} instead of {self.wanted} (rows of {rows})"


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="f16",
            precision=WeightPrecision.FP16,
            file_type=1,
            weights="F16",
            output="F16",
            bits=16,
        ),
        Recipe(
            name="q8_0",
            precision=WeightPrecision.INT8,
            file_type=7,
            weights="Q8_0",
            output="Q8_0",
            bits=8.5,
        ),
        Recipe(
            name="q4_1",
            precision=WeightPrecision.INT4,
            file_type=3,
            weights="Q4_1",
            output="Q8_0",
            bits=6,
        ),
        Recipe(
            name="q4_0",
            precision=WeightPrecision.INT4,
            file_type=2,
            weights="Q4_0",
            output="Q8_0",
            bits=5.5,
        ),
        Recipe(
            name="q4_k_m",
            precision=WeightPrecision.INT4,
            file_type=15,
            weights="Q4_K",
            output="Q6_K",
            deep="Q6_K",
            bits=6.5,
        ),
    )
}


def recipes_of(precision: WeightPrecision) -> tuple[str, ...]:
    """Names of the recipes for a precision, its default first; empty if there is none."""
    return tuple(name for name, recipe in RECIPES.items() if recipe.precision is precision)


def recipe_of_file_type(file_type: int | None) -> Recipe | None:
    """The recipe that writes this `general.file_type`; None for any other."""
    return next((item for item in RECIPES.values() if item.file_type == file_type), None)


def is_quantised(name: str, shape: Sequence[int]) -> bool:
    """Whether recipes apply to this tensor: a weight matrix, no norm and no expert router."""
    return (
        len(shape) > 1
        and name.endswith(".weight")
        and not name.endswith(("_norm.weight", "ffn_gate_inp.weight"))
    )


def types_for(recipe: Recipe, header: GgufHeader) -> dict[str, Choice]:
    """The type of every matrix of an F16 file that the recipe applies to, by tensor name."""
    layers = header.integer(f"{header.architecture}.block_count") or 0
    tied = all(tensor.name != OUTPUT for tensor in header.tensors)
    return {
        tensor.name: choose(recipe, tensor.name, tensor.shape, layers=layers, tied=tied)
        for tensor in header.tensors
        if tensor.type_name != VECTOR and is_quantised(tensor.name, tensor.shape)
    }


def fallbacks(choices: Iterable[Choice]) -> list[Fallback]:
    """What fell back, grouped by wanted and given type; empty if everything is as promised."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for choice in choices:
        if choice.given != choice.wanted:
            groups[choice.wanted, choice.given].append(choice.row)
    return sorted(
        Fallback(wanted=wanted, given=given, count=len(rows), rows=tuple(sorted(set(rows))))
        for (wanted, given), rows in groups.items()
    )


def fallback_hint(recipe: Recipe, given: str) -> str:
    """What a spec can say instead, or in addition."""
    default = recipes_of(recipe.precision)[0]
    instead = (
        "`precision.weights` to fp16"
        if recipe.name == default
        else (f"`precision.recipe` to {default}")
    )
    return f"set {instead}, or list {given.lower()} in `precision.allow_fallback`"


def choose(recipe: Recipe, name: str, shape: Sequence[int], *, layers: int, tied: bool) -> Choice:
    """The type of one matrix.

    Args:
        recipe: the scheme.
        name: the tensor's name in GGUF.
        shape: rows first.
        layers: how many blocks the model has.
        tied: whether the embedding serves as output matrix, so that there is no output tensor.
    """
    wanted = recipe.weights
    if name == (EMBEDDING if tied else OUTPUT):
        wanted = recipe.output
    elif recipe.deep and _is_deep(name, layers):
        wanted = recipe.deep
    row = shape[-1]
    given = wanted
    while row % BLOCKS.get(given, 1):
        given = _FALLBACK.get(given, PLAIN)
    return Choice(wanted=wanted, given=given, row=row)


def _is_deep(name: str, layers: int) -> bool:
    parts = name.split(".")
    if len(parts) < 3 or parts[0] != "blk" or parts[2] not in {"attn_v", "ffn_down"}:
        return False
    layer, eighth = int(parts[1]), layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
