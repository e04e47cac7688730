"""The five Triton models of a TensorRT-LLM engine, and what goes into their templates. Pure.

    preprocessing → tensorrt_llm → postprocessing     wired together by `ensemble`
    tensorrt_llm_bls                                  the same, wired together by a script

Everything that the engine decides is read from the engine: sizes, types, beams. Ranks are not told
at all: the backend counts them in the engine's own config.json.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_pipeline.targets.triton.template import placeholders
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_pipeline.backends.port import EngineFacts

ENGINE, ENTRY, BLS = "tensorrt_llm", "ensemble", "tensorrt_llm_bls"
# The order of loading: what takes longest and fails most first, what clients call last.
ENGINE_MODELS = (ENGINE, "preprocessing", "postprocessing", BLS, ENTRY)
ENGINE_TEMPLATES = "inflight_batcher_llm"
# Placeholders that must be filled, by model; a template without one of them is not the release's.
# Source: docs of the tensorrtllm backend, table of mandatory parameters (v0.16 to v0.19).
MANDATORY: Mapping[str, tuple[str, ...]] = {
    "preprocessing": (
        "tokenizer_dir",
        "triton_max_batch_size",
        "preprocessing_instance_count",
        "max_queue_delay_microseconds",
        "max_queue_size",
    ),
    ENGINE: (
        "triton_backend",
        "triton_max_batch_size",
        "decoupled_mode",
        "engine_dir",
        "batching_strategy",
        "max_queue_delay_microseconds",
        "max_queue_size",
        "encoder_input_features_data_type",
        "logits_datatype",
    ),
    "postprocessing": ("tokenizer_dir", "triton_max_batch_size", "postprocessing_instance_count"),
    ENTRY: ("triton_max_batch_size", "logits_datatype"),
    BLS: (
        "triton_max_batch_size",
        "decoupled_mode",
        "bls_instance_count",
        "accumulate_tokens",
        "logits_datatype",
    ),
}
_TYPES = {"float16": "TYPE_FP16", "bfloat16": "TYPE_BF16", "float32": "TYPE_FP32"}
# What a release's `serving` calls by trtllm-serve's names, and how the templates call it.
_SERVING = {"kv_cache_free_gpu_memory_fraction": "kv_cache_free_gpu_mem_fraction"}
# Ours to decide unless the target's settings say otherwise.
_DEFAULTS = {
    "decoupled_mode": "true",  # without it no answer can be streamed
    "batching_strategy": "inflight_fused_batching",
    "exclude_input_in_output": "true",  # so that an answer is an answer, not the prompt
    "max_queue_delay_microseconds": "0",
    "max_queue_size": "0",
    "preprocessing_instance_count": "1",
    "postprocessing_instance_count": "1",
    "bls_instance_count": "1",
    "accumulate_tokens": "false",
}


def engine_values(
    facts: EngineFacts,
    config: bytes,
    *,
    engine_dir: str,
    tokenizer_dir: str,
    runtime_config: Mapping[str, Any],
    settings: Mapping[str, bool | int | float | str],
) -> dict[str, str]:
    """Values for every placeholder that is known.

    Args:
        facts: of the engine.
        config: its config.json.
        engine_dir: where the server finds it.
        tokenizer_dir: where the server finds its tokenizer.
        runtime_config: of the release.
        settings: of the target.

    Raises:
        Incompatible: the engine does not say what is needed.
        InvalidInput: a setting for something that the engine or the release decides.
    """
    limits = facts.details.get("limits", {})
    batch = limits.get("max_batch_size")
    if not isinstance(batch, int):
        raise Incompatible(
            "the engine's config.json names no max_batch_size",
            hint="look with `enginectl inspect`, and build the engine again",
            reference="engine-without-limits",
        )
    model = json.loads(config).get("pretrained_config", {})
    own = _type(str(model.get("dtype", "float16")), "dtype")
    derived = {
        "triton_backend": "tensorrtllm",
        "triton_max_batch_size": str(batch),
        "max_beam_width": str(limits.get("max_beam_width", 1)),
        "engine_dir": engine_dir,
        "tokenizer_dir": tokenizer_dir,
        # The checkpoint format's default is float32.
        "logits_datatype": _type(str(model.get("logits_dtype") or "float32"), "logits_dtype"),
        "encoder_input_features_data_type": own,
        "prompt_embedding_table_data_type": own,
    }
    released = {
        _SERVING[name]: _text(value)
        for key, value in runtime_config.get("serving", {}).items()
        if (name := str(key).replace("-", "_")) in _SERVING
    }
    chosen = {key: _text(value) for key, value in settings.items()}
    _refuse_settings(chosen, derived, "the engine decides it")
    _refuse_settings(chosen, released, "the release decides it")
    _refuse_gpus(chosen, facts)
    return _DEFAULTS | chosen | released | derived


def refuse_unknown(settings: Iterable[str], templates: Mapping[str, str]) -> None:
    """Refuse a setting that no template has a placeholder for.

    Raises:
        InvalidInput: reference `setting-unknown`, with the names there are.
    """
    known = frozenset().union(*(placeholders(text) for text in templates.values()))
    if unknown := sorted(set(settings) - known):
        raise InvalidInput(
            f"settings: no template has ${{{unknown[0]}}}; there are {', '.join(sorted(known))}",
            hint="use one of these, or templates of the release that has it",
            reference="setting-unknown",
        )


def _refuse_settings(chosen: Mapping[str, str], decided: Mapping[str, str], why: str) -> None:
    for key, value in decided.items():
        if key in chosen:
            raise InvalidInput(
                f"settings.{key} is {chosen[key]}, but {why}: {value}",
                hint=f"take `{key}` out of the target's `settings`",
                reference="setting-is-derived",
            )


def _refuse_gpus(chosen: Mapping[str, str], facts: EngineFacts) -> None:
    """GPUs may be chosen, but exactly as many as the engine has ranks."""
    if (ids := chosen.get("gpu_device_ids")) is None:
        return
    ranks = int(facts.details.get("tensor", 1)) * int(facts.details.get("pipeline", 1))
    for instance in ids.split(";"):
        count = len([item for item in instance.split(",") if item.strip()])
        if count != ranks:
            raise InvalidInput(
                f"settings.gpu_device_ids names {count} GPU(s), the engine has {ranks} rank(s)",
                hint=f"name {ranks}, or leave it out",
                reference="setting-is-derived",
            )


def _type(dtype: str, what: str) -> str:
    found = _TYPES.get(dtype)
    if found is None:
        raise Incompatible(
            f"the engine's {what} is {dtype!r}, Triton has a type for {', '.join(_TYPES)}",
            hint="look with `enginectl inspect`, and build the engine again",
            reference="engine-type-unknown",
        )
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
