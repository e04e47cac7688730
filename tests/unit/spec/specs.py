"""A small valid spec for tests, and locks of it."""

from __future__ import annotations

import copy
from typing import Any

from engine_pipeline.spec.lock import BuildLock, LockedFile, LockedSource, LockedTokenizer
from engine_pipeline.spec.model import BuildSpec
from engine_registry.digest import Digest

PLAIN: dict[str, Any] = {
    "schema_version": 1,
    "model": {"name": "tiny", "source": "hf://org/tiny", "revision": "main"},
    "target": {"sku": "h100-sxm-80gb"},
    "precision": {"weights": "fp8", "kv_cache": "fp16"},
    "backend": {"kind": "trtllm-engine", "version": "1.2.1"},
    "limits": {
        "max_batch_size": 4,
        "max_input_tokens": 100,
        "max_sequence_tokens": 200,
        "max_batch_tokens": 100,
    },
    "suites": ["core"],
}


def spec_with(changes: dict[str, Any] | None = None) -> BuildSpec:
    """The spec with values at dotted paths replaced."""
    plain = copy.deepcopy(PLAIN)
    for path, value in (changes or {}).items():
        place = plain
        *parents, last = path.split(".")
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = value
    return BuildSpec.model_validate(plain)


def source_of(uri: str = "hf://org/tiny", **files: bytes) -> LockedSource:
    contents = files or {"config.json": b"{}", "model.safetensors": b"w"}
    return LockedSource(
        source=uri,
        revision="c" * 40,
        files=tuple(
            LockedFile(path=path, size_bytes=len(data), digest=Digest.of(data))
            for path, data in sorted(contents.items())
        ),
    )


def lock_with(changes: dict[str, Any] | None = None, **parts: Any) -> BuildLock:
    """A lock of `spec_with(changes)`; `parts` replace fields of the lock."""
    fields: dict[str, Any] = {
        "source": source_of(),
        "tokenizer": LockedTokenizer(
            digest=Digest.of(b"vocabulary"), chat_template=Digest.of(b"template")
        ),
        "tools": {"tensorrt-llm": "1.2.1"},
    }
    return BuildLock(spec=spec_with(changes), **{**fields, **parts})
