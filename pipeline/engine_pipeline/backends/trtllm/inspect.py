"""What an engine directory says about itself, read offline from anywhere, without TensorRT.

    1 the directory   not empty, an engine's config.json, no other kind of thing
    2 config.json     versions, precision, ranks, limits, plugins
    3 rank files      one plan for each rank and no more, none empty, foreign or cut off
    4 versions        the same TensorRT in every plan, and the one that belongs to the release
    5 sizes           a plan that holds its weights is not smaller than they are

Nothing here says which board the plans are for: no file does. The record of the build has that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.port import EngineFacts, EngineFile
from engine_pipeline.backends.trtllm.builder import (
    CONFIG_FILE,
    TIMING_CACHE_FILE,
    TOKENIZER_DIR,
    engine_files,
)
from engine_pipeline.backends.trtllm.engine_config import limits_of, read_engine_config
from engine_pipeline.backends.trtllm.plan_header import read_plan_header
from engine_pipeline.backends.trtllm.plan_sizes import refuse_cut_off, without_weights
from engine_pipeline.backends.trtllm.sizing import sizing_of_engine
from engine_pipeline.capacity.parameters import parameters_of
from engine_pipeline.compat.fit import TENSORRT, TENSORRT_LLM
from engine_pipeline.compat.releases import find_release, same_version
from engine_pipeline.spec.model import EngineKind
from engine_pipeline.spec.tokenizer import TOKENIZER_FILES, tokenizer_of_files
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.manifest import WEIGHT, WEIGHT_CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.trtllm.engine_config import EngineConfig
    from engine_pipeline.backends.trtllm.plan_header import PlanHeader
    from engine_pipeline.spec.lock import LockedTokenizer

_HINT = "build the engine again; a failed build can leave such a directory behind"
# Written by mixed precision and LoRA builds, and read by the runtime.
_FURTHER = ("quant_cfg.json", "lora")
_ENCODER_DECODER = ("encoder", "decoder")


def inspect_engine(engine_dir: Path) -> EngineFacts:
    """The facts of the engine in `engine_dir`.

    `details` holds what people and `compare` want to know: precision, ranks, limits, plugins and
    the whole effective `build_config`.

    Raises:
        NotFound: there is no such directory.
        InvalidInput: `engine-empty`, `engine-foreign`, `engine-too-old`, `engine-truncated`,
            `engine-incomplete`, `engine-versions-mixed`, `engine-config-unreadable`.
    """
    _check_directory(engine_dir)
    config = read_engine_config((engine_dir / CONFIG_FILE).read_bytes(), CONFIG_FILE)
    files = engine_files(config.world_size, managed_weights=config.managed_weights)
    _check_files(engine_dir, config, files)
    headers = {
        name: read_plan_header(engine_dir / name) for name in files if name.endswith(".engine")
    }
    tensorrt = _check_versions(config, headers)
    sizes = {name: header.size_bytes for name, header in headers.items()}
    bare = without_weights(config, sizes)
    if not (bare or config.managed_weights):
        refuse_cut_off(config, sizes)
    tokenizer = _tokenizer(engine_dir)
    return EngineFacts(
        kind=EngineKind.TRTLLM_ENGINE,
        format="tensorrt-plan",
        format_version=tensorrt,
        architecture=config.architecture,
        tensor_types={},
        parameters=parameters_of(config.shape).total if config.shape else 0,
        context_tokens=limits_of(config).get("max_seq_len"),
        tokenizer=tokenizer.digest if tokenizer else None,
        chat_template=tokenizer.chat_template if tokenizer else None,
        runtime={TENSORRT_LLM: config.version, TENSORRT: tensorrt},
        files=_files(engine_dir, files),
        details=_details(config, bare=bare),
    )


def _check_directory(engine_dir: Path) -> None:
    if not engine_dir.is_dir():
        raise NotFound(
            f"{engine_dir}: no such directory",
            hint="name a directory that trtllm-build wrote",
            reference="engine-missing",
        )
    names = {path.name for path in engine_dir.iterdir()}
    if not names:
        raise InvalidInput(
            f"{engine_dir.name} is an empty directory: nothing was built, or it was moved away",
            hint=_HINT,
            reference="engine-empty",
        )
    if CONFIG_FILE in names:
        return
    what, reference = _instead(names)
    raise InvalidInput(
        f"{engine_dir.name} has no {CONFIG_FILE}: {what}", hint=_HINT, reference=reference
    )


def _instead(names: set[str]) -> tuple[str, str]:
    """What a directory without config.json is, and the error's reference."""
    if names >= set(_ENCODER_DECODER):
        return "an encoder-decoder model in two engines, not served here", "engine-foreign"
    if "llm.engine" in names:
        return "an engine of TensorRT Edge-LLM, another runtime", "engine-foreign"
    if any(name.endswith(".engine") for name in names):
        return "plans alone: copied in part, or a build that did not finish", "engine-incomplete"
    return f"no engine (there are: {', '.join(sorted(names)[:8])})", "engine-foreign"


def _check_files(engine_dir: Path, config: EngineConfig, files: tuple[str, ...]) -> None:
    ranks = config.world_size
    there = sorted(path.name for path in engine_dir.glob("rank*"))
    if not any(name.endswith(".engine") for name in there):
        raise InvalidInput(
            f"{engine_dir.name} has {CONFIG_FILE} and no plan: left behind by a build that failed",
            hint=_HINT,
            reference="engine-incomplete",
        )
    sides = (
        f"config.json says {ranks} rank(s) (tensor {config.tensor} × pipeline {config.pipeline})"
    )
    if missing := [name for name in files if not (engine_dir / name).is_file()]:
        raise InvalidInput(
            f"{engine_dir.name}: {sides}, missing: {', '.join(missing)}",
            hint=_HINT,
            reference="engine-incomplete",
        )
    if surplus := [name for name in there if name not in files]:
        raise InvalidInput(
            f"{engine_dir.name}: {sides}, there are also {', '.join(surplus)}",
            hint="empty the output directory before each build",
            reference="engine-versions-mixed",
        )
    for name in files:
        if not (engine_dir / name).stat().st_size:
            raise InvalidInput(
                f"{name} is empty (0 bytes): the build that left it did not finish",
                hint=_HINT,
                reference="engine-empty",
            )


def _check_versions(config: EngineConfig, headers: dict[str, PlanHeader]) -> str:
    """The one TensorRT version of all plans."""
    versions = sorted({header.tensorrt for header in headers.values()})
    if len(versions) > 1:
        sides = ", ".join(f"{name} {header.tensorrt}" for name, header in headers.items())
        raise InvalidInput(
            f"plans of different TensorRT versions in one directory: {sides}",
            hint="empty the output directory before each build",
            reference="engine-versions-mixed",
        )
    release = find_release(config.version)
    wanted = release.tensorrt if release else None
    if wanted is not None and not same_version(versions[0], wanted):
        raise InvalidInput(
            f"config.json is of TensorRT-LLM {config.version}, which has TensorRT {wanted}; the "
            f"plans are of TensorRT {versions[0]}",
            hint="the directory mixes two builds: build the engine again",
            reference="engine-versions-mixed",
        )
    return versions[0]


def _tokenizer(engine_dir: Path) -> LockedTokenizer | None:
    folder = engine_dir / TOKENIZER_DIR
    place = folder if folder.is_dir() else engine_dir
    texts = {
        path.name: path.read_bytes() for path in place.iterdir() if path.name in TOKENIZER_FILES
    }
    return tokenizer_of_files(texts, engine_dir.name)


def _files(engine_dir: Path, files: tuple[str, ...]) -> tuple[EngineFile, ...]:
    """Everything that belongs to the engine; the timing cache does not."""
    paths = [engine_dir / name for name in files]
    folders = [TOKENIZER_DIR, *_FURTHER]
    for folder in folders:
        place = engine_dir / folder
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        paths += [path for path in found if path.is_file()]
    paths += [engine_dir / name for name in TOKENIZER_FILES if (engine_dir / name).is_file()]
    heavy = (".engine", ".safetensors", ".bin", ".nemo")
    return tuple(
        EngineFile(
            path=path.relative_to(engine_dir).as_posix(),
            size_bytes=path.stat().st_size,
            media_type=WEIGHT if path.suffix in heavy else WEIGHT_CONFIG,
        )
        for path in sorted(set(paths))
        if path.name != TIMING_CACHE_FILE
    )


def _details(config: EngineConfig, *, bare: bool) -> dict[str, Any]:
    sizing = sizing_of_engine(config)
    return {
        "dtype": config.dtype,
        "quantisation": config.quant_algo,
        "kv_cache": config.cache_algo or config.dtype,
        "kv_cache_type": config.build.get("kv_cache_type"),
        "tensor": config.tensor,
        "pipeline": config.pipeline,
        "limits": limits_of(config),
        "plugins": {
            key: value for key, value in config.plugins.items() if value not in (None, False)
        },
        "stripped": config.stripped,
        "needs_refit": bare,
        "managed_weights": config.managed_weights,
        "producer": config.producer,
        "board_label": config.cluster_key,
        "build_config": {**config.build, "plugin_config": config.plugins},
        "sizing": sizing.model_dump(mode="json") if sizing else None,
    }
