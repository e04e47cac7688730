"""The command that serves an engine. Pure.

Ranks and sizes come from the engine's config.json: the server ignores what it is told of them for
an engine. The tokenizer is the engine's own, and nothing is looked up on a hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.backends.trtllm.builder import TOKENIZER_DIR
from engine_pipeline.compat.fit import TENSORRT_LLM
from engine_pipeline.compat.releases import builder_removal
from engine_pipeline.tables import table_beside
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.port import EngineFacts

_HOST = "{host}"
_SHM_BYTES = 16 << 30
# Whatever a server was told, it must not ask the hub while somebody waits for an answer.
OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
MODEL_NAME = "engine"


def serve_command(facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
    """How to start `trtllm-serve` of the release that built the engine.

    Raises:
        Incompatible: `release-cannot-serve-engines`, `engine-not-refitted`, `tokenizer-missing`.
        InvalidInput: a serving setting is unknown or out of range.
    """
    version = facts.runtime.get(TENSORRT_LLM, "unknown")
    line = _line(version)
    if facts.details.get("needs_refit"):
        raise Incompatible(
            "the engine's plans are stripped of their weights, a server needs them",
            hint="refit them with trtllm-refit; `enginectl build` does so",
            reference="engine-not-refitted",
        )
    if facts.tokenizer is None:
        raise Incompatible(
            f"the engine has no tokenizer in {TOKENIZER_DIR}/, trtllm-serve needs one",
            hint=f"put the model's tokenizer files into {TOKENIZER_DIR}/, or build with enginectl",
            reference="tokenizer-missing",
        )
    serving = runtime_config.get("serving", {})
    check_serving(serving, version)
    settings = [item for key in sorted(serving) for item in (f"--{_flag(key)}", str(serving[key]))]
    ranks = int(facts.details.get("tensor", 1)) * int(facts.details.get("pipeline", 1))
    return ServeCommand(
        argv=(
            "trtllm-serve",
            "{engine}",
            "--tokenizer",
            f"{{engine}}/{TOKENIZER_DIR}",
            "--host",
            _HOST,
            "--port",
            "{port}",
            *line["fixed"],
            *settings,
        ),
        env=OFFLINE,
        health_path=line["health"],
        model_name=MODEL_NAME,
        gpus=ranks,
        shm_bytes=_SHM_BYTES,
    )


def check_serving(serving: dict[str, Any], version: str) -> None:
    """Refuse a serving configuration with an unknown key or a value out of range."""
    settings = _line(version)["settings"]
    for key, value in serving.items():
        kind = settings.get(_flag(key))
        if kind is None:
            raise InvalidInput(
                f"serving: unknown {key!r}; known for trtllm-engine {version}: "
                + ", ".join(settings),
                hint="use one of these in `serving`",
                reference="unknown-value",
            )
        if not _takes(kind, value):
            raise InvalidInput(
                f"serving.{key} is {value!r}, want {_range(kind)}",
                hint=f"see trtllm-serve --help of {version}",
                reference="serving-value-invalid",
            )


def _takes(kind: str | list[str], value: Any) -> bool:
    if isinstance(kind, list):
        return value in kind
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 if kind == "fraction" else isinstance(value, int) and value >= 0


def _range(kind: str | list[str]) -> str:
    if isinstance(kind, list):
        return f"one of {', '.join(kind)}"
    return "a number above 0 and up to 1" if kind == "fraction" else "a whole number"


def _flag(key: str) -> str:
    return key.replace("-", "_")


def _line(version: str) -> dict[str, Any]:
    table = _table()
    name = table["line_of"].get(version)
    if name is None:
        raise Incompatible(
            f"TensorRT-LLM {version} is not known to serve engines: {builder_removal().reason}",
            hint=f"serve with the release that built the engine, {builder_removal().last_stable} "
            "at most",
            reference="release-cannot-serve-engines",
        )
    found: dict[str, Any] = table["lines"][name]
    return found


def _table() -> dict[str, Any]:
    return table_beside(__file__, "serve.json")
