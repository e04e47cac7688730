"""Where a checkpoint is not what its lock asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.checkpoint.check import check_quantisation
from engine_pipeline.backends.checkpoint.quantisation import Quantisation
from engine_pipeline.backends.checkpoint.runtime_file import runtime_of
from engine_pipeline.backends.checkpoint.serving_yaml import serving_config
from engine_pipeline.backends.port import Mismatch
from engine_pipeline.compat.fit import TENSORRT_LLM
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.spec.lock import BuildLock

_REBUILD = "run `enginectl lock` and `enginectl build` again"


def differences(lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
    """Every fact that differs, with both sides; empty if lock and checkpoint agree."""
    return (*_precision(lock, facts), *_runtime(lock, facts), *_contents(lock, facts))


def _precision(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    details = facts.details
    found = Quantisation(
        quant_algo=details.get("quantisation"), cache_algo=details.get("cache_algo")
    )
    try:
        check_quantisation(lock.spec, found, details.get("dtype"))
    except Incompatible as error:
        yield Mismatch(
            what="precision",
            wanted=f"{lock.spec.precision.weights} with {lock.spec.precision.kv_cache} KV cache",
            found=error.message.partition(": the checkpoint is not what the spec says: ")[2],
            hint=error.hint,
        )


def _runtime(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    wanted = runtime_of(lock)
    pairs = (
        ("TensorRT-LLM", wanted.tensorrt_llm, facts.runtime.get(TENSORRT_LLM)),
        ("image", wanted.image, facts.details.get("image")),
        ("SKU", wanted.sku, facts.details.get("board")),
        ("tensor parallelism", wanted.parallelism.tensor, facts.details.get("tensor")),
        ("pipeline parallelism", wanted.parallelism.pipeline, facts.details.get("pipeline")),
    )
    for what, asked, found in pairs:
        if asked != found:
            yield Mismatch(
                what=what, wanted=str(asked or "none"), found=str(found or "none"), hint=_REBUILD
            )
    served, asked_for = facts.details.get("serving") or {}, serving_config(lock.spec)
    for key in sorted({*served, *asked_for}):
        if served.get(key) != asked_for.get(key):
            yield Mismatch(
                what=f"serving.yaml: {key}",
                wanted=str(asked_for.get(key, "not set")),
                found=str(served.get(key, "not set")),
                hint=_REBUILD,
            )


def _contents(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
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
    sizes = {file.path: file.size_bytes for file in facts.files}
    for file in lock.source.files:
        if sizes.get(file.path) != file.size_bytes:
            yield Mismatch(
                what=file.path,
                wanted=f"{file.size_bytes} bytes",
                found=f"{sizes[file.path]} bytes" if file.path in sizes else "not there",
                hint=_REBUILD,
            )
