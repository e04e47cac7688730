"""Which kind of engine a bare directory holds, by the names in it and a look at config.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_pipeline.spec.model import EngineKind
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = "config.json"
# What only one kind's config.json has; an engine that names no model is a very old one.
_ENGINE_KEYS = frozenset({"pretrained_config", "build_config", "builder_config"})


def kind_of_directory(directory: Path) -> EngineKind:
    """The kind whose backend can inspect `directory`, damaged or not.

    Raises:
        NotFound: there is no such directory.
        InvalidInput: `engine-empty` or `engine-foreign`: nothing in it belongs to any kind.
    """
    if not directory.is_dir():
        raise NotFound(
            f"{directory}: no such directory",
            hint="name a directory of engine files, or an engine of the registry",
            reference="engine-missing",
        )
    names = {path.name for path in directory.iterdir()}
    if not names:
        raise InvalidInput(
            f"{directory.name} is an empty directory",
            hint="name a directory of engine files, or an engine of the registry",
            reference="engine-empty",
        )
    if any(name.endswith(".gguf") for name in names):
        return EngineKind.LLAMA_CPP
    config = _config(directory) if _CONFIG in names else {}
    if config.keys() & _ENGINE_KEYS or any(name.endswith(".engine") for name in names):
        return EngineKind.TRTLLM_ENGINE
    if _CONFIG in names:
        return EngineKind.TRTLLM_CHECKPOINT
    raise InvalidInput(
        f"{directory.name} holds no engine of a kind known here (there are: "
        f"{', '.join(sorted(names)[:8])})",
        hint="an engine has a .gguf file, rankN.engine files, or config.json with safetensors",
        reference="engine-foreign",
    )


def _config(directory: Path) -> dict[str, Any]:
    """The object in config.json; empty for anything else, which the kind's backend will name."""
    try:
        value = json.loads((directory / _CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
