"""Where an engine is not what its lock asked for. Pure.

The builder corrects what it is told and says so in its log only (builder.py of TensorRT-LLM: sizes
clipped or raised, fusions switched off, FP8 attention switched on). So every setting is held
against `build_config`, the effective one. A spec can accept named corrections with
`backend.options.allow-adjusted`; the effective values are in the engine's facts either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.port import Mismatch
from engine_pipeline.backends.trtllm.families import choose_family, family_of
from engine_pipeline.backends.trtllm.settings import DISABLE, ENABLE, settings_of
from engine_pipeline.compat.fit import TENSORRT_LLM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.lock import BuildLock

_REBUILD = "run `enginectl lock` and `enginectl build` again"
# Not kept in config.json under the flag's name, or not at all.
_NOT_KEPT = frozenset({"logits_dtype", "profiling_verbosity", "auto_parallel", "gpus_per_node"})
# One rank has nobody to talk to: the builder drops the plugin, whatever it is told.
_ONE_RANK = "nccl_plugin"


def differences(lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
    """Every fact that differs, with both sides; empty if lock and engine agree."""
    settings = settings_of(lock.spec)
    return (
        *_identity(lock, facts, settings),
        *_ranks(lock, facts),
        *_adjusted(lock, facts, settings),
        *_weights(facts, settings),
        *_tokenizer(lock, facts),
    )


def _identity(lock: BuildLock, facts: EngineFacts, settings: Settings) -> Iterator[Mismatch]:
    built = facts.runtime.get(TENSORRT_LLM, "not stated")
    if built != lock.spec.backend.version:
        yield Mismatch(
            what="TensorRT-LLM",
            wanted=lock.spec.backend.version,
            found=built,
            hint="the image has another release than backend.version says: correct one of them",
        )
    family = choose_family(settings.options.family, lock.shape, lock.spec.name)
    found = family_of(facts.architecture)
    if found is not None and found.name != family.name:
        yield Mismatch(
            what="model family",
            wanted=family.name,
            found=f"{found.name} ({facts.architecture})",
            hint=_REBUILD,
        )
    wanted = {
        "quantisation": settings.recipe.quant_algo,
        "kv_cache": settings.cache.quant_algo or settings.dtype,
        "dtype": settings.dtype,
    }
    for what, value in wanted.items():
        if facts.details.get(what) != value:
            yield Mismatch(
                what=what.replace("_", " "),
                wanted=value or "none",
                found=facts.details.get(what) or "none",
                hint="conversion did not do what the recipe says; read the log of step checkpoint",
            )


def _ranks(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    parallelism = lock.spec.target.parallelism
    for what, value in (("tensor", parallelism.tensor), ("pipeline", parallelism.pipeline)):
        if facts.details.get(what) != value:
            yield Mismatch(
                what=f"{what} parallelism",
                wanted=str(value),
                found=str(facts.details.get(what)),
                hint=_REBUILD,
            )


def _adjusted(lock: BuildLock, facts: EngineFacts, settings: Settings) -> Iterator[Mismatch]:
    build: dict[str, Any] = facts.details.get("build_config") or {}
    plugins: dict[str, Any] = build.get("plugin_config") or {}
    asked = {name: str(size) for name, size in settings.sizes.items()} | settings.flags
    accepted = {*_NOT_KEPT, *settings.options.allow_adjusted}
    if lock.spec.target.parallelism.world_size == 1:
        accepted.add(_ONE_RANK)
    for name, wanted in asked.items():
        place = plugins if name in settings.plugins else build
        if name in accepted or (name in place and _says(wanted, place[name], settings.dtype)):
            continue
        # A release may drop a switch that it has no use for; what it is told is then off.
        if name not in place and wanted == DISABLE:
            continue
        yield Mismatch(
            what=f"build_config.{name}",
            wanted=wanted,
            found=_word(place[name]) if name in place else "not in config.json",
            hint=f"set it so in the spec, or add {name} to backend.options.allow-adjusted",
        )


def _weights(facts: EngineFacts, settings: Settings) -> Iterator[Mismatch]:
    if facts.details.get("needs_refit"):
        yield Mismatch(
            what="weights",
            wanted="in the plans",
            found="stripped and not refitted",
            hint="run `enginectl build`, which refits, or trtllm-refit yourself",
        )
    for what, asked in (
        ("stripped", settings.options.strip_plan),
        ("managed_weights", settings.options.fast_build),
    ):
        if bool(facts.details.get(what)) != asked:
            yield Mismatch(
                what=what.replace("_", " "),
                wanted="yes" if asked else "no",
                found="no" if asked else "yes",
                hint=_REBUILD,
            )


def _tokenizer(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    pairs = (
        ("tokenizer", lock.tokenizer.digest, facts.tokenizer),
        ("chat template", lock.tokenizer.chat_template, facts.chat_template),
    )
    for what, wanted, found in pairs:
        if wanted != found:
            yield Mismatch(
                what=what,
                wanted=str(wanted or "none"),
                found=str(found or "none"),
                hint=_REBUILD,
            )


def _says(wanted: str, found: Any, dtype: str) -> bool:
    """Whether a value of config.json is what the flag's word asked for.

    Switches are booleans there and disabled plugins null; `auto` stays or becomes the model's type;
    enumerations are upper case.
    """
    if isinstance(found, bool) or found is None:
        return wanted == (ENABLE if found else DISABLE)
    if isinstance(found, int):
        return wanted == str(found)
    word = str(found).lower()
    return word == wanted or (wanted == "auto" and word == dtype)


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return ENABLE if value else DISABLE
    return str(value)
