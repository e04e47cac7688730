"""The command that serves a checkpoint. Pure.

Sizes and ranks are in `serving.yaml`, not on the command line: up to 1.2 the file beats flags, from
1.3 on flags beat the file, so nothing is said twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.checkpoint.serving_yaml import SERVING_FILE
from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.compat.fit import TENSORRT_LLM
from engine_pipeline.tables import table_beside
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.port import EngineFacts

_HOST = "{host}"
_SHM_BYTES = 16 << 30
_OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_NAME = "engine"


def serve_command(facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
    """How to start `trtllm-serve` of the release that the checkpoint names.

    Raises:
        Incompatible: `release-unknown`: a bare checkpoint that says no release.
        InvalidInput: a serving setting is unknown or out of range.
    """
    version = facts.runtime.get(TENSORRT_LLM)
    if version is None:
        raise Incompatible(
            "the checkpoint does not say which TensorRT-LLM serves it",
            hint="build it with enginectl, which writes runtime.json",
            reference="release-unknown",
        )
    line = _line(version)
    serving = runtime_config.get("serving", {})
    check_serving(serving, version)
    settings = [
        item
        for key in sorted(serving)
        for item in (f"--{key.replace('-', '_')}", str(serving[key]))
    ]
    ranks = int(facts.details.get("tensor", 1)) * int(facts.details.get("pipeline", 1))
    return ServeCommand(
        argv=(
            "trtllm-serve",
            "{engine}",
            "--host",
            _HOST,
            "--port",
            "{port}",
            *line["fixed"],
            line["yaml"],
            f"{{engine}}/{SERVING_FILE}",
            *settings,
        ),
        env=_OFFLINE,
        health_path=line["health"],
        model_name=_NAME,
        gpus=ranks,
        shm_bytes=_SHM_BYTES,
    )


def check_serving(serving: dict[str, Any], version: str) -> None:
    """Refuse a serving configuration with an unknown key or a value out of range."""
    known = _line(version)["settings"]
    for key, value in serving.items():
        name = key.replace("-", "_")
        if name not in known:
            raise InvalidInput(
                f"serving: unknown {key!r}; known for trtllm-checkpoint {version}: "
                + ", ".join(known),
                hint="use one of these in `serving`; sizes are in `limits` and backend.options",
                reference="unknown-value",
            )
        levels = _table()["log_levels"]
        fits = value in levels if name == "log_level" else _is_count(value)
        if not fits:
            want = ", ".join(levels) if name == "log_level" else "a whole number"
            raise InvalidInput(
                f"serving.{key} is {value!r}, want {want}",
                hint=f"see trtllm-serve --help of {version}",
                reference="serving-value-invalid",
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _line(version: str) -> dict[str, Any]:
    table = _table()
    name = next(line for pattern, line in table["line_of"] if re.match(pattern, version))
    found: dict[str, Any] = table["lines"][name]
    return found


def _table() -> dict[str, Any]:
    return table_beside(__file__, "serve.json")
