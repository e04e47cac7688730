"""Whether a model goes with a spec's recipe, ranks and lengths. Pure.

Needs the family and the shape of the locked model, so it answers before anything is downloaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.recipes import uses_quantize
from engine_pipeline.backends.trtllm.settings import ENABLE
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.backends.trtllm.families import Family
    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.model import BuildSpec
    from engine_pipeline.spec.shape import ModelShape

# The one family whose all-reduce the builder fuses; builder.py of TensorRT-LLM at aaacc9bd.
_FUSES = "llama"


def check_model(
    spec: BuildSpec, settings: Settings, family: Family, shape: ModelShape | None
) -> None:
    """Refuse a model that this spec's recipe, ranks or lengths do not go with.

    Raises:
        Incompatible: `recipe-not-for-family`, `parallelism-not-for-model`, `sequence-too-long`,
            `source-quantised-already`.
    """
    _check_family(settings, family, spec)
    if shape is None:
        return
    recipe = settings.recipe
    if shape.quantisation != recipe.quantised_source:
        raise Incompatible(
            f"{spec.name}: recipe {recipe.name} wants a source that is "
            f"{recipe.quantised_source or 'not quantised'}, config.json says "
            f"{shape.quantisation or 'not quantised'}",
            hint="take the unquantised model, or the recipe that goes with the source",
            reference="source-quantised-already",
        )
    longest, wanted = shape.max_positions, spec.limits.max_sequence_tokens
    if longest is not None and wanted > longest:
        raise Incompatible(
            f"{spec.name}: limits.max_sequence_tokens is {wanted}, the model was made for "
            f"{longest}",
            hint=f"lower it to {longest}, or take a model with longer positions",
            reference="sequence-too-long",
        )
    for problem in _rank_problems(spec, settings, shape):
        raise Incompatible(
            f"{spec.name}: {problem}",
            hint="change target.parallelism so that it divides the model",
            reference="parallelism-not-for-model",
        )


def _check_family(settings: Settings, family: Family, spec: BuildSpec) -> None:
    recipe = settings.recipe
    if recipe.families and family.name not in recipe.families:
        raise Incompatible(
            f"recipe {recipe.name} works for {', '.join(recipe.families)}, {spec.model.name} is "
            f"{family.name}",
            hint="choose another precision, or kind trtllm-checkpoint",
            reference="recipe-not-for-family",
        )
    plain = uses_quantize(recipe, settings.cache) or recipe.qformat == "full_prec"
    if not plain and recipe.convert not in family.weight_only:
        raise Incompatible(
            f"recipe {recipe.name}: convert_checkpoint.py of {family.name} makes "
            f"{', '.join(family.weight_only)}, not {recipe.convert}",
            hint="choose a recipe that quantize.py makes, such as int4_awq or fp8",
            reference="recipe-not-for-family",
        )
    if not family.pipeline and spec.target.parallelism.pipeline > 1:
        raise Incompatible(
            f"{family.name} models have no pipeline parallelism, the spec asks for "
            f"{spec.target.parallelism.pipeline} stages",
            hint="set target.parallelism.pipeline to 1",
            reference="parallelism-not-for-model",
        )
    fuses = settings.flags["reduce_fusion"] == ENABLE
    if fuses and family.name != _FUSES and "reduce_fusion" not in settings.options.allow_adjusted:
        raise InvalidInput(
            f"backend.options.reduce-fusion is enabled: the builder would switch it off for "
            f"{family.name}, it is for {_FUSES} alone",
            hint="remove it, or add reduce_fusion to backend.options.allow-adjusted",
            reference="builder-would-adjust",
        )
    if settings.options.moe_expert > 1 and not family.experts:
        raise InvalidInput(
            f"backend.options.moe-expert-parallel is {settings.options.moe_expert}, "
            f"{family.name} models have no experts",
            hint="remove moe-expert-parallel",
            reference="field-without-use",
        )


def _rank_problems(spec: BuildSpec, settings: Settings, shape: ModelShape) -> Iterator[str]:
    tensor, pipeline = spec.target.parallelism.tensor, spec.target.parallelism.pipeline
    if shape.heads % tensor:
        yield f"{shape.heads} attention heads cannot be split between {tensor} ranks"
    if shape.kv_heads % tensor and tensor % shape.kv_heads:
        yield f"{shape.kv_heads} key-value heads cannot be split between {tensor} ranks"
    if shape.layers < pipeline:
        yield f"{shape.layers} layers cannot be split into {pipeline} stages"
    if shape.intermediate % tensor:
        yield f"an MLP of width {shape.intermediate} cannot be split between {tensor} ranks"
    expert = settings.options.moe_expert
    if tensor % expert or (shape.experts is not None and shape.experts.count % expert):
        experts = shape.experts.count if shape.experts else 0
        yield f"{experts} experts on {tensor} ranks cannot be spread over {expert}"
    group = settings.options.group_size
    if settings.recipe.group and shape.intermediate // tensor % group:
        yield (
            f"an MLP of width {shape.intermediate // tensor} per rank is no multiple of group-size "
            f"{group}"
        )
