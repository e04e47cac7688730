"""What a trtllm-engine spec may say. Pure; every refusal names both sides and what would work.

Needs the spec alone, so it answers before anything is looked up; what depends on the model is
`model_fit`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.build_flags import build_versions, quirk, refused_plugins
from engine_pipeline.backends.trtllm.recipes import (
    needs_calibration,
    paged_context_fmha,
    qformats_of,
    recipe_called,
    recipes_of,
    uses_quantize,
)
from engine_pipeline.backends.trtllm.serve import check_serving
from engine_pipeline.backends.trtllm.settings import DISABLE, ENABLE, settings_of
from engine_pipeline.compat.releases import builder_removal, find_release
from engine_pipeline.spec.hardware import GpuSku, find_sku, refuse_impossible
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.model import BuildSpec


def check_spec(spec: BuildSpec) -> None:
    """Refuse a spec that cannot be built or served; see `Backend.check`."""
    _check_version(spec)
    _check_recipe(spec)
    refuse_impossible(spec)
    sku = find_sku(spec.target.sku)
    sm = sku.sm if isinstance(sku, GpuSku) else 0
    settings = settings_of(spec)
    _check_capability(spec, settings, sm)
    _check_types(spec, settings)
    _check_quantize(spec, settings)
    _check_attention(spec, settings)
    _check_limits(spec, settings)
    _check_switches(spec, settings, sm)
    check_serving(spec.serving, spec.backend.version)


def _check_version(spec: BuildSpec) -> None:
    version = spec.backend.version
    if version in build_versions():
        return
    release = find_release(version)
    if release is not None and not release.builder:
        removal = builder_removal()
        raise Incompatible(
            f"backend.version {version} has no engine builder: {removal.reason}",
            hint=f"set backend.version to {removal.last_stable}, or backend.kind to "
            "trtllm-checkpoint and keep this version",
            reference="builder-removed",
        )
    raise Incompatible(
        f"backend.version {version}: not known as a release with trtllm-build; known: "
        + ", ".join(build_versions()),
        hint=f"set backend.version to {builder_removal().last_stable}, the last stable one",
        reference="backend-version-unsupported",
    )


def _check_recipe(spec: BuildSpec) -> None:
    precision = spec.precision
    known = recipes_of(precision.weights)
    name = precision.recipe
    if name is not None and recipe_called(name) is None:
        raise InvalidInput(
            f"precision.recipe: unknown {name!r}; known for {precision.weights} weights: "
            + ", ".join(known),
            hint="use one of these, or leave it out for the first",
            reference="unknown-value",
        )
    if name is not None and name not in known:
        raise InvalidInput(
            f"precision.recipe {name} does not give {precision.weights} weights; these do: "
            + ", ".join(known),
            hint="correct precision.recipe or precision.weights",
            reference="precision-contradicts",
        )
    if precision.allow_fallback:
        raise InvalidInput(
            "precision.allow_fallback: trtllm-engine never falls back to another type, the spec "
            f"says {', '.join(precision.allow_fallback)}",
            hint="remove it; backend.options.allow-adjusted is for what the builder changes",
            reference="field-without-use",
        )


def _check_capability(spec: BuildSpec, settings: Settings, sm: int) -> None:
    recipe = settings.recipe
    if sm < recipe.min_sm:
        raise Incompatible(
            f"recipe {recipe.name} needs SM {recipe.min_sm} or newer, "
            f"{spec.target.sku} has SM {sm}",
            hint="choose another precision.recipe for this board: "
            + (", ".join(_other_recipes(spec, sm)) or "none of these weights"),
            reference="recipe-not-on-sku",
        )


def _check_types(spec: BuildSpec, settings: Settings) -> None:
    recipe, cache, dtype = settings.recipe, settings.cache, settings.dtype
    if dtype not in recipe.dtype:
        raise InvalidInput(
            f"precision: {recipe.name} computes in {' or '.join(recipe.dtype)}, the spec asks for "
            f"{dtype} (precision.kv_cache {spec.precision.kv_cache})",
            hint="an unquantised KV cache has the type of the activations: make them agree",
            reference="precision-contradicts",
        )
    if cache.dtype is not None and dtype != cache.dtype:
        raise InvalidInput(
            f"precision.kv_cache {spec.precision.kv_cache} means {cache.dtype} activations, "
            f"backend.options.dtype is {dtype}",
            hint="make them agree, or quantise the KV cache",
            reference="precision-contradicts",
        )
    if cache.flag is not None and recipe.qformat is None:
        raise Incompatible(
            f"{spec.precision.kv_cache} KV cache with recipe {recipe.name}: its scales cannot be "
            "calibrated from a source that is quantised already",
            hint="set precision.kv_cache to fp16, or quantise here with int4_awq",
            reference="cache-not-with-recipe",
        )


def _check_quantize(spec: BuildSpec, settings: Settings) -> None:
    version, recipe = spec.backend.version, settings.recipe
    if uses_quantize(recipe, settings.cache) and recipe.qformat not in qformats_of(version):
        able = [v for v in build_versions() if recipe.qformat in qformats_of(v)]
        raise Incompatible(
            f"recipe {recipe.name}: quantize.py of {version} has no --qformat {recipe.qformat}; "
            f"these have it: {', '.join(able)}",
            hint="set backend.version to one of those, or choose another recipe",
            reference="recipe-not-in-release",
        )
    needed = needs_calibration(recipe, settings.cache)
    if needed and spec.calibration is None:
        raise InvalidInput(
            f"{spec.name}: recipe {recipe.name} with {spec.precision.kv_cache} KV cache takes "
            "scales from data, the spec names none",
            hint="add `calibration:` with source and revision of a data set that has a text column",
            reference="calibration-missing",
        )
    if spec.calibration is not None and not needed:
        raise InvalidInput(
            f"calibration: recipe {recipe.name} has no use for it, the spec says "
            f"{spec.calibration.source}",
            hint="remove `calibration` from the spec",
            reference="field-without-use",
        )


def _check_attention(spec: BuildSpec, settings: Settings) -> None:
    able = paged_context_fmha(settings.recipe, settings.cache)
    if settings.paged_context_fmha and not able:
        raise Incompatible(
            f"use-paged-context-fmha is enabled, with {spec.precision.kv_cache} KV cache and "
            f"{settings.recipe.name} weights the builder refuses it",
            hint="remove use-paged-context-fmha from backend.options, or change the KV cache",
            reference="paged-fmha-with-this-cache",
        )
    known = quirk("paged-fmha-cannot-be-disabled")
    quantised = settings.recipe.quant_algo is not None or settings.cache.flag is not None
    if not settings.paged_context_fmha and quantised and spec.backend.version in known.releases:
        raise Incompatible(
            f"{spec.precision.kv_cache} KV cache with {settings.recipe.name} weights needs "
            f"use_paged_context_fmha disable: {known.says}",
            hint="set backend.version to another release, or precision.kv_cache to fp16",
            reference="paged-fmha-cannot-be-disabled",
        )


def _check_limits(spec: BuildSpec, settings: Settings) -> None:
    limits, block = spec.limits, int(settings.flags["tokens_per_block"])
    at_once = limits.max_batch_size * limits.max_sequence_tokens
    problem = ""
    if limits.max_batch_tokens < limits.max_batch_size:
        problem = f"below max_batch_size {limits.max_batch_size}: each sequence decodes one token"
    elif limits.max_batch_tokens < block:
        problem = f"below tokens-per-block {block}: no block of the KV cache could be filled"
    elif limits.max_batch_tokens > at_once:
        problem = (
            f"above max_batch_size × max_sequence_tokens {at_once}: the builder would lower it"
        )
    if problem:
        raise InvalidInput(
            f"limits.max_batch_tokens {limits.max_batch_tokens} is {problem}",
            hint="correct limits.max_batch_tokens",
            reference="limits-inconsistent",
        )
    if "opt_num_tokens" in settings.options.flags:
        if settings.flags["multiple_profiles"] == ENABLE:
            raise InvalidInput(
                "backend.options: multiple-profiles is enabled and opt-num-tokens is set; the "
                "builder refuses both together",
                hint="remove opt-num-tokens",
                reference="options-contradict",
            )
        if int(settings.flags["opt_num_tokens"]) > limits.max_batch_tokens:
            raise InvalidInput(
                f"backend.options.opt-num-tokens {settings.flags['opt_num_tokens']} is above "
                f"limits.max_batch_tokens {limits.max_batch_tokens}",
                hint="lower opt-num-tokens",
                reference="limits-inconsistent",
            )


def _check_switches(spec: BuildSpec, settings: Settings, sm: int) -> None:
    for name in refused_plugins(sm):
        if settings.flags[name] != DISABLE:
            raise Incompatible(
                f"backend.options.{_option(name)} is {settings.flags[name]}, TensorRT-LLM refuses "
                f"it on SM {sm} ({spec.target.sku})",
                hint=f"remove `{_option(name)}`",
                reference="plugin-refused-on-sku",
            )
    for name, found, why in _adjustments(spec, settings):
        if name not in settings.options.allow_adjusted:
            raise InvalidInput(
                f"backend.options.{_option(name)} is {settings.flags[name]}: the builder "
                f"would set it to {found} {why}",
                hint=f"remove it, or add {name} to backend.options.allow-adjusted",
                reference="builder-would-adjust",
            )


def _adjustments(spec: BuildSpec, settings: Settings) -> Iterator[tuple[str, str, str]]:
    """What the builder sets otherwise whatever the model: name, value, why.

    Source: builder.py of TensorRT-LLM at aaacc9bd.
    """
    flags = settings.flags
    if flags["reduce_fusion"] == ENABLE and spec.target.parallelism.tensor == 1:
        yield "reduce_fusion", DISABLE, "on one rank"
    if flags["user_buffer"] == ENABLE and flags["reduce_fusion"] != ENABLE:
        yield "user_buffer", DISABLE, "without reduce-fusion"
    if flags["use_fused_mlp"] == ENABLE and not settings.recipe.fused_mlp:
        yield "use_fused_mlp", DISABLE, f"for {settings.recipe.name} weights"


def _other_recipes(spec: BuildSpec, sm: int) -> list[str]:
    found = (recipe_called(name) for name in recipes_of(spec.precision.weights))
    return [recipe.name for recipe in found if recipe is not None and recipe.min_sm <= sm]


def _option(flag: str) -> str:
    return flag.replace("_", "-")
