"""What a trtllm-checkpoint spec may say. Pure; a refusal names both sides and what would work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.checkpoint.options import read_options
from engine_pipeline.backends.checkpoint.quantisation import METHOD
from engine_pipeline.backends.checkpoint.schemes import (
    cache_algo,
    scheme_called,
    scheme_for,
    schemes_of,
)
from engine_pipeline.backends.checkpoint.serve import check_serving
from engine_pipeline.compat.releases import find_release, releases
from engine_pipeline.spec.hardware import GpuSku, find_sku, refuse_impossible
from engine_pipeline.spec.model import CachePrecision, WeightPrecision
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.checkpoint.quantisation import Quantisation
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec
    from engine_pipeline.spec.shape import ModelShape

_TORCH_TYPES = {CachePrecision.FP16: "float16", CachePrecision.BF16: "bfloat16"}
_EXPORT = (
    "quantise the model with ModelOpt's hf_ptq.py --export_fmt hf and point model.source there"
)


def check_spec(spec: BuildSpec) -> None:
    """Refuse a spec that cannot be served; see `Backend.check`."""
    _check_version(spec)
    _check_scheme(spec)
    refuse_impossible(spec)
    scheme, sku = scheme_for(spec.precision), find_sku(spec.target.sku)
    if isinstance(sku, GpuSku) and sku.sm < scheme.min_sm:
        raise Incompatible(
            f"scheme {scheme.name} needs SM {scheme.min_sm} or newer, {sku.name} has SM {sku.sm}",
            hint="choose another precision.recipe, or another board",
            reference="recipe-not-on-sku",
        )
    plain = {WeightPrecision.FP16: CachePrecision.FP16, WeightPrecision.BF16: CachePrecision.BF16}
    wanted = plain.get(spec.precision.weights)
    if wanted is not None and spec.precision.kv_cache not in (wanted, CachePrecision.FP8):
        raise InvalidInput(
            f"precision: {spec.precision.weights} weights with {spec.precision.kv_cache} KV cache: "
            f"an unquantised cache has the weights' type, {wanted}",
            hint=f"set precision.kv_cache to {wanted} or fp8",
            reference="precision-contradicts",
        )
    read_options(spec.backend.options)
    _refuse_unused(spec)
    _check_limits(spec)
    check_serving(spec.serving, spec.backend.version)


def check_model(lock: BuildLock) -> None:
    """Refuse a source that is not what the spec says, as far as the lock tells.

    Raises:
        InvalidInput: `source-config-missing`, `checkpoint-quantised-otherwise`.
        Incompatible: `checkpoint-precision-differs`, `sequence-too-long`,
            `parallelism-not-for-model`.
    """
    spec, shape = lock.spec, lock.shape
    if shape is None:
        raise InvalidInput(
            f"{spec.name}: the source has no config.json of a decoder",
            hint="point model.source at a checkpoint in Hugging Face's layout",
            reference="source-config-missing",
        )
    quantised = scheme_for(spec.precision).quant_algo is not None
    files = {file.path for file in lock.source.files}
    stated = "hf_quant_config.json" in files or shape.quantisation is not None
    if quantised != stated:
        raise Incompatible(
            f"{spec.name}: the spec says {spec.precision.weights} weights, the source is "
            f"{'quantised' if stated else 'not quantised'} (hf_quant_config.json and config.json)",
            hint=_EXPORT if quantised else "set precision to what the checkpoint has",
            reference="checkpoint-precision-differs",
        )
    if shape.quantisation not in (None, METHOD):
        raise InvalidInput(
            f"{spec.name}: config.json says quant_method {shape.quantisation}, this kind takes "
            f"{METHOD}",
            hint=_EXPORT,
            reference="checkpoint-quantised-otherwise",
        )
    _check_ranks(spec, shape)


def check_quantisation(spec: BuildSpec, found: Quantisation, dtype: str | None) -> None:
    """Refuse a checkpoint whose files say another precision than the spec.

    Args:
        spec: what was asked for.
        found: what the files say.
        dtype: of what is not quantised, as config.json says it.

    Raises:
        Incompatible: `checkpoint-precision-differs`, with both sides.
    """
    scheme, cache = scheme_for(spec.precision), cache_algo(spec.precision.kv_cache)
    sides = [
        ("weights", scheme.quant_algo or "not quantised", found.quant_algo or "not quantised"),
        ("KV cache", cache or "not quantised", found.cache_algo or "not quantised"),
    ]
    # A server can keep an FP8 cache for 16-bit weights; quantised ones bring their scales.
    if scheme.quant_algo is None and found.cache_algo is None:
        sides.pop()
    wanted = _TORCH_TYPES.get(spec.precision.kv_cache)
    if wanted is not None and dtype is not None:
        sides.append(("activations", wanted, dtype))
    differing = [f"{what}: spec {a}, checkpoint {b}" for what, a, b in sides if a != b]
    if differing:
        raise Incompatible(
            f"{spec.name}: the checkpoint is not what the spec says: {'; '.join(differing)}",
            hint="correct precision in the spec, or take the checkpoint that was meant",
            reference="checkpoint-precision-differs",
        )


def _check_version(spec: BuildSpec) -> None:
    release = find_release(spec.backend.version)
    if release is None or not release.pytorch:
        able = [item.version for item in releases() if item.pytorch]
        raise Incompatible(
            f"backend.version {spec.backend.version}: not known to serve checkpoints on PyTorch; "
            f"known: {', '.join(able)} and newer",
            hint="set backend.version to one of these",
            reference="backend-version-unsupported",
        )


def _check_scheme(spec: BuildSpec) -> None:
    precision = spec.precision
    known = schemes_of(precision.weights)
    if not known:
        works = [weights for weights in WeightPrecision if schemes_of(weights)]
        raise Incompatible(
            f"{precision.weights} weights: trtllm-checkpoint engines cannot have them; these work: "
            + ", ".join(works),
            hint="set precision.weights to one of them, or choose another backend.kind",
            reference="precision-unsupported",
        )
    name = precision.recipe
    if name is not None and (scheme_called(name) is None or name not in known):
        raise InvalidInput(
            f"precision.recipe: {name!r} is no scheme for {precision.weights} weights; these are: "
            + ", ".join(known),
            hint="use one of these, or leave it out for the first",
            reference="unknown-value",
        )


def _refuse_unused(spec: BuildSpec) -> None:
    unused = {
        "calibration": spec.calibration and spec.calibration.source,
        "precision.allow_fallback": ", ".join(spec.precision.allow_fallback),
    }
    for field, value in unused.items():
        if value:
            raise InvalidInput(
                f"{field}: a checkpoint that is quantised already has no use for it, the spec says "
                f"{value}",
                hint=f"remove `{field}` from the spec",
                reference="field-without-use",
            )


def _check_limits(spec: BuildSpec) -> None:
    limits = spec.limits
    if limits.max_batch_tokens < limits.max_batch_size:
        raise InvalidInput(
            f"limits.max_batch_tokens {limits.max_batch_tokens} is below max_batch_size "
            f"{limits.max_batch_size}: each sequence decodes one token",
            hint="raise limits.max_batch_tokens",
            reference="limits-inconsistent",
        )


def _check_ranks(spec: BuildSpec, shape: ModelShape) -> None:
    parallelism, longest = spec.target.parallelism, shape.max_positions
    if longest is not None and spec.limits.max_sequence_tokens > longest:
        raise Incompatible(
            f"{spec.name}: limits.max_sequence_tokens is {spec.limits.max_sequence_tokens}, the "
            f"model was made for {longest}",
            hint=f"lower it to {longest}",
            reference="sequence-too-long",
        )
    if shape.heads % parallelism.tensor or shape.layers < parallelism.pipeline:
        raise Incompatible(
            f"{spec.name}: {shape.heads} heads and {shape.layers} layers cannot be split into "
            f"tensor {parallelism.tensor} × pipeline {parallelism.pipeline}",
            hint="change target.parallelism so that it divides the model",
            reference="parallelism-not-for-model",
        )
