"""What a llama-cpp spec may say. Pure; every refusal names what would work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.llama_cpp.recipes import BLOCKS, PLAIN, recipes_of
from engine_pipeline.backends.llama_cpp.runtime import RUNTIME, SUPPORTED_RUNTIME
from engine_pipeline.spec.hardware import refuse_impossible
from engine_pipeline.spec.model import CachePrecision, WeightPrecision
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.spec.model import BuildSpec, PrecisionSpec

# Key → smallest value, largest value, meaning.
SERVING = {
    "threads": (1, 1024, "compute threads; default: usable cores less one"),
    "prompt_cache_mib": (0, 1 << 20, "host memory for prompts seen before; default 256"),
}


def check_spec(spec: BuildSpec) -> None:
    """Refuse a spec that cannot be built or served; see `Backend.check`."""
    _check_precision(spec.precision)
    refuse_impossible(spec)
    if spec.target.parallelism.world_size > 1:
        raise Incompatible(
            f"{spec.target.parallelism.world_size} ranks: a llama-cpp engine runs on one",
            hint="set tensor and pipeline of `target.parallelism` to 1",
            reference="parallelism-unsupported",
        )
    if spec.backend.version != SUPPORTED_RUNTIME:
        raise Incompatible(
            f"backend.version {spec.backend.version}: supported is {RUNTIME} {SUPPORTED_RUNTIME}",
            hint=f"set `backend.version` to {SUPPORTED_RUNTIME}",
            reference="backend-version-unsupported",
        )
    _refuse_unused(spec)
    limits = spec.limits
    if limits.max_batch_tokens < limits.max_batch_size:
        raise InvalidInput(
            f"limits.max_batch_tokens {limits.max_batch_tokens} is below max_batch_size "
            f"{limits.max_batch_size}: one forward pass holds a token of each sequence",
            hint="raise `limits.max_batch_tokens`",
            reference="limits-inconsistent",
        )
    check_serving(spec.serving)


def check_serving(serving: dict[str, Any]) -> None:
    """Refuse a serving configuration with an unknown key or a value out of range."""
    for key, value in serving.items():
        if key not in SERVING:
            raise _unknown("serving", key, tuple(SERVING))
        low, high, meaning = SERVING[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            raise InvalidInput(
                f"serving.{key} is {value!r}, want a whole number from {low} to {high}",
                hint=f"{key}: {meaning}",
                reference="serving-value-invalid",
            )


def _check_precision(precision: PrecisionSpec) -> None:
    known = recipes_of(precision.weights)
    if not known:
        works = ", ".join(
            f"{weights} ({' or '.join(recipes_of(weights))})"
            for weights in WeightPrecision
            if recipes_of(weights)
        )
        raise Incompatible(
            f"{precision.weights} weights: llama-cpp engines cannot have them; these work: {works}",
            hint="set `precision.weights` to one of them, or choose another backend.kind",
            reference="precision-unsupported",
        )
    if precision.recipe and precision.recipe not in known:
        raise _unknown("precision.recipe", precision.recipe, known)
    if precision.kv_cache is not CachePrecision.FP16:
        raise Incompatible(
            f"{precision.kv_cache} KV cache: llama-cpp engines cannot have it; this works: fp16",
            hint="set `precision.kv_cache` to fp16",
            reference="precision-unsupported",
        )
    types = tuple(sorted(kind.lower() for kind in {*BLOCKS, PLAIN}))
    for kind in precision.allow_fallback:
        if kind not in types:
            raise _unknown("precision.allow_fallback", kind, types)


def _refuse_unused(spec: BuildSpec) -> None:
    unused = {
        "backend.options": ", ".join(sorted(spec.backend.options)),
        "backend.image": spec.backend.image,
        "calibration": spec.calibration and spec.calibration.source,
    }
    for field, value in unused.items():
        if value:
            raise InvalidInput(
                f"{field}: llama-cpp engines have no use for it, the spec says {value}",
                hint=f"remove `{field}` from the spec",
                reference="field-without-use",
            )


def _unknown(field: str, value: str, known: tuple[str, ...]) -> InvalidInput:
    return InvalidInput(
        f"{field}: unknown {value!r}; known for llama-cpp: {', '.join(known)}",
        hint=f"use one of these in `{field}`",
        reference="unknown-value",
    )
