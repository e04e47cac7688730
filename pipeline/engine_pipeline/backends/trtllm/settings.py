"""What `trtllm-build` is told for a spec: every size and switch, by name. Pure.

One table for three uses: `builder` turns it into a command, `check` refuses contradictions in it,
`compare` holds it against what the engine's `config.json` says came of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.build_flags import BY_RECIPE, COMPUTED, flags_of
from engine_pipeline.backends.trtllm.options import read_options
from engine_pipeline.backends.trtllm.recipes import (
    cache_format,
    paged_context_fmha,
    recipe_for,
)

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.options import EngineOptions
    from engine_pipeline.backends.trtllm.recipes import CacheFormat, Recipe
    from engine_pipeline.spec.model import BuildSpec

ENABLE, DISABLE = "enable", "disable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A spec, as the builder sees it.

    Attributes:
        dtype: of whatever is not quantised: `float16` or `bfloat16`.
        sizes: limits by the builder's names.
        flags: every other flag with a value, in the order they are given.
        plugins: which of `flags` are plugins or switches of `plugin_config`.
    """

    recipe: Recipe
    cache: CacheFormat
    options: EngineOptions
    dtype: str
    sizes: dict[str, int]
    flags: dict[str, str]
    plugins: frozenset[str]

    @property
    def paged_context_fmha(self) -> bool:
        """Whether context attention reads the paged cache; it cannot with every KV cache."""
        return self.flags["use_paged_context_fmha"] == ENABLE


def settings_of(spec: BuildSpec) -> Settings:
    """Everything the builder of the spec's release is told.

    Raises:
        InvalidInput, Incompatible: an option is unknown, malformed or not in this release.
    """
    version = spec.backend.version
    options = read_options(spec.backend.options, version)
    recipe, cache = recipe_for(spec.precision), cache_format(spec.precision.kv_cache)
    limits = spec.limits
    sizes = {
        "max_batch_size": limits.max_batch_size,
        "max_input_len": limits.max_input_tokens,
        "max_seq_len": limits.max_sequence_tokens,
        "max_num_tokens": limits.max_batch_tokens,
    }
    paged = paged_context_fmha(recipe, cache)
    by_recipe = {
        "logits_dtype": recipe.logits_dtype,
        "gemm_plugin": recipe.gemm_plugin,
        "use_fused_mlp": _switch(on=recipe.fused_mlp),
        "use_paged_context_fmha": _switch(on=paged),
        # Without FP8 on both sides there is nothing to compute in FP8.
        "use_fp8_context_fmha": _switch(on=paged and cache.flag == "fp8"),
    }
    table = flags_of(version)
    flags = {
        flag.name: options.flags.get(flag.name)
        or (by_recipe[flag.name] if flag.pinned == BY_RECIPE else flag.pinned)
        for flag in table
    }
    if flags["opt_num_tokens"] == COMPUTED:
        # What the builder deduces itself; with several profiles it refuses to be told.
        if flags["multiple_profiles"] == ENABLE:
            del flags["opt_num_tokens"]
        else:
            wanted = limits.max_batch_size * int(flags["max_beam_width"])
            flags["opt_num_tokens"] = str(min(wanted, limits.max_batch_tokens))
    return Settings(
        recipe=recipe,
        cache=cache,
        options=options,
        dtype=options.dtype or cache.dtype or recipe.dtype[0],
        sizes=sizes,
        flags=flags,
        plugins=frozenset(flag.name for flag in table if flag.plugin),
    )


def _switch(*, on: bool) -> str:
    return ENABLE if on else DISABLE
