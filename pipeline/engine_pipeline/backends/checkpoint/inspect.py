"""What a checkpoint directory says about itself, read offline. Headers only, never the weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.checkpoint.quantisation import (
    CONFIG_FILE,
    QUANT_FILE,
    read_quantisation,
)
from engine_pipeline.backends.checkpoint.runtime_file import RUNTIME_FILE, read_runtime
from engine_pipeline.backends.checkpoint.serving_yaml import SERVING_FILE
from engine_pipeline.backends.checkpoint.shards import read_shards
from engine_pipeline.backends.checkpoint.sizing import sizing_of_checkpoint
from engine_pipeline.backends.port import EngineFacts, EngineFile
from engine_pipeline.capacity.parameters import parameters_of
from engine_pipeline.compat.fit import TENSORRT_LLM
from engine_pipeline.spec.model import EngineKind
from engine_pipeline.spec.shape import shape_of_config
from engine_pipeline.spec.tokenizer import TOKENIZER_FILES, tokenizer_of_files
from engine_pipeline.yaml_file import load_yaml
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.manifest import WEIGHT, WEIGHT_CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.checkpoint.runtime_file import CheckpointRuntime

_HINT = "name a directory with config.json and safetensors files, as `enginectl build` leaves one"


def inspect_checkpoint(directory: Path) -> EngineFacts:
    """The facts of the checkpoint in `directory`.

    `details` holds precision, ranks, sizes and the serving settings. A bare checkpoint, without
    `runtime.json` and `serving.yaml`, is read too; it just names no release.

    Raises:
        NotFound: there is no such directory.
        InvalidInput: `engine-empty`, `engine-foreign`, `engine-truncated`, `engine-incomplete`,
            `engine-config-unreadable`, and what `read_quantisation` raises.
    """
    config = _config(directory)
    shape = shape_of_config(config)
    if shape is None:
        raise InvalidInput(
            f"{directory.name}/{CONFIG_FILE} is no decoder's: layers, heads or vocabulary missing",
            hint=_HINT,
            reference="engine-foreign",
        )
    quant_file = directory / QUANT_FILE
    quantisation = read_quantisation(
        config, quant_file.read_bytes() if quant_file.is_file() else None, directory.name
    )
    types, _ = read_shards(directory)
    runtime = _runtime(directory)
    serving = _serving(directory)
    tokenizer = tokenizer_of_files(
        {
            path.name: path.read_bytes()
            for path in directory.iterdir()
            if path.name in TOKENIZER_FILES
        },
        directory.name,
    )
    tensor = runtime.parallelism.tensor if runtime else 1
    pipeline = runtime.parallelism.pipeline if runtime else 1
    sizing = sizing_of_checkpoint(shape, quantisation, serving, tensor, pipeline)
    return EngineFacts(
        kind=EngineKind.TRTLLM_CHECKPOINT,
        format="hf-safetensors",
        format_version=quantisation.producer or "plain",
        architecture=shape.architecture,
        tensor_types=types,
        parameters=parameters_of(shape).total,
        context_tokens=shape.max_positions,
        tokenizer=tokenizer.digest if tokenizer else None,
        chat_template=tokenizer.chat_template if tokenizer else None,
        runtime={TENSORRT_LLM: runtime.tensorrt_llm} if runtime else {},
        files=_files(directory),
        details={
            "dtype": shape.dtype,
            "quantisation": quantisation.quant_algo,
            "kv_cache": quantisation.cache_algo or shape.dtype,
            "cache_algo": quantisation.cache_algo,
            "group_size": quantisation.group_size,
            "layer_schemes": list(quantisation.layer_algos),
            "producer": quantisation.producer,
            "excluded": list(quantisation.excluded),
            "tensor": tensor,
            "pipeline": pipeline,
            "image": runtime.image if runtime else None,
            "board": runtime.sku if runtime else None,
            "serving": serving,
            "sizing": sizing.model_dump(mode="json") if sizing else None,
        },
    )


def _config(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise NotFound(f"{directory}: no such directory", hint=_HINT, reference="engine-missing")
    names = {path.name for path in directory.iterdir()}
    if not names:
        raise InvalidInput(
            f"{directory.name} is an empty directory", hint=_HINT, reference="engine-empty"
        )
    if CONFIG_FILE not in names:
        raise InvalidInput(
            f"{directory.name} has no {CONFIG_FILE} (there are: {', '.join(sorted(names)[:8])})",
            hint=_HINT,
            reference="engine-foreign",
        )
    try:
        config = json.loads((directory / CONFIG_FILE).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{directory.name}/{CONFIG_FILE}: not JSON: {error}",
            hint=_HINT,
            reference="engine-config-unreadable",
        ) from error
    if not isinstance(config, dict) or "pretrained_config" in config:
        what = "an engine's" if isinstance(config, dict) else "no JSON object"
        raise InvalidInput(
            f"{directory.name}/{CONFIG_FILE} is {what}, not a checkpoint's",
            hint="for an engine of trtllm-build use kind trtllm-engine",
            reference="engine-foreign",
        )
    return config


def _runtime(directory: Path) -> CheckpointRuntime | None:
    path = directory / RUNTIME_FILE
    return read_runtime(path.read_bytes(), RUNTIME_FILE) if path.is_file() else None


def _serving(directory: Path) -> dict[str, Any] | None:
    path = directory / SERVING_FILE
    if not path.is_file():
        return None
    value, _ = load_yaml(path, reference="engine-config-unreadable")
    return value if isinstance(value, dict) else None


def _files(directory: Path) -> tuple[EngineFile, ...]:
    return tuple(
        EngineFile(
            path=path.relative_to(directory).as_posix(),
            size_bytes=path.stat().st_size,
            media_type=WEIGHT if path.suffix == ".safetensors" else WEIGHT_CONFIG,
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    )
