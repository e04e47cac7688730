"""`config.json` of an engine directory, as TensorRT-LLM 0.13 to 1.3 writes it. Pure.

Top level: `version` (of TensorRT-LLM), `pretrained_config` (the checkpoint's), `build_config` (what
the builder made of its flags). Up to 1.1 `build_config.auto_parallel_config.cluster_key` is a label
of the board, which whoever builds can set: shown, never trusted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine_pipeline.spec.shape import ModelShape, shape_of_config
from engine_registry.errors import InvalidInput

_HINT = "build the engine again with a release this project knows, or take the right directory"
_SIZES = ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """An engine's config.json.

    Attributes:
        version: of the TensorRT-LLM that built it.
        quant_algo, cache_algo: of weights and KV cache; None if they are not quantised.
        build: `build_config` but for its plugins.
        plugins: `build_config.plugin_config`.
        shape: of the model; None if the config does not tell it all.
        cluster_key: label of the board; None where there is none.
    """

    version: str
    architecture: str
    dtype: str
    quant_algo: str | None
    cache_algo: str | None
    tensor: int
    pipeline: int
    world_size: int
    build: dict[str, Any]
    plugins: dict[str, Any]
    shape: ModelShape | None
    producer: str | None
    cluster_key: str | None

    @property
    def stripped(self) -> bool:
        """It was compiled without weights; whether they are in by now, only sizes tell."""
        return self.build.get("use_strip_plan") is True

    @property
    def managed_weights(self) -> bool:
        """Its weights are in files of their own."""
        return self.plugins.get("manage_weights") is True


def read_engine_config(data: bytes, name: str) -> EngineConfig:
    """Parse an engine's config.json.

    Args:
        data: the file.
        name: its path, for errors.

    Raises:
        InvalidInput: `engine-config-unreadable`, `engine-foreign` or `engine-too-old`.
    """
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{name}: not JSON: {error}", hint=_HINT, reference="engine-config-unreadable"
        ) from error
    if not isinstance(config, dict):
        raise InvalidInput(
            f"{name}: not a JSON object", hint=_HINT, reference="engine-config-unreadable"
        )
    version = config.get("version")
    model, build = config.get("pretrained_config"), config.get("build_config")
    if not isinstance(version, str):
        raise _not_an_engine(config, name)
    if not (isinstance(model, dict) and isinstance(build, dict)):
        missing = "pretrained_config" if not isinstance(model, dict) else "build_config"
        raise InvalidInput(
            f"{name}: has version {version} and no {missing}",
            hint=_HINT,
            reference="engine-config-unreadable",
        )
    mapping = _object(model, "mapping")
    quantisation = _object(model, "quantization")
    tensor, pipeline = _count(mapping, "tp_size"), _count(mapping, "pp_size")
    producer = _object(model, "producer")
    return EngineConfig(
        version=version,
        architecture=_text(model, "architecture") or "unknown",
        dtype=_text(model, "dtype") or "unknown",
        quant_algo=_text(quantisation, "quant_algo"),
        cache_algo=_text(quantisation, "kv_cache_quant_algo"),
        tensor=tensor,
        pipeline=pipeline,
        world_size=max(_count(mapping, "world_size"), tensor * pipeline),
        build={key: value for key, value in build.items() if key != "plugin_config"},
        plugins=_object(build, "plugin_config"),
        shape=shape_of_config(model),
        producer=" ".join(str(value) for value in producer.values()) or None,
        cluster_key=_text(_object(build, "auto_parallel_config"), "cluster_key"),
    )


def limits_of(config: EngineConfig) -> dict[str, int]:
    """The sizes the engine was built for, by the builder's names."""
    return {key: config.build[key] for key in _SIZES if isinstance(config.build.get(key), int)}


def _not_an_engine(config: dict[str, Any], name: str) -> InvalidInput:
    if "builder_config" in config:
        return InvalidInput(
            f"{name}: no `version`: the engine is from before TensorRT-LLM 0.8",
            hint="build it again; nothing later can load it",
            reference="engine-too-old",
        )
    if "edgellm_version" in config:
        what = "an engine of TensorRT Edge-LLM, another runtime"
    elif "quantization" in config and "mapping" in config:
        what = "a TensorRT-LLM checkpoint, not compiled yet"
    elif "model_type" in config or "architectures" in config:
        what = "a Hugging Face checkpoint"
    else:
        what = "no config.json of an engine"
    return InvalidInput(
        f"{name}: {what} (no `version`, `pretrained_config` and `build_config`)",
        hint=_HINT,
        reference="engine-foreign",
    )


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _text(parent: dict[str, Any], key: str) -> str | None:
    value = parent.get(key)
    return value if isinstance(value, str) and value else None


def _count(parent: dict[str, Any], key: str) -> int:
    value = parent.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
