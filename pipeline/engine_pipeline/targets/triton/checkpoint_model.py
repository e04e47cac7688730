"""The one Triton model of a checkpoint: `model.yaml` for the LLM API. Pure.

The serving settings were promoted with the checkpoint and come from there. The file is JSON, which
is YAML, so that nothing has to be quoted by hand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.backends.port import EngineFacts

MODEL = "tensorrt_llm"
CHECKPOINT_MODELS = (MODEL,)
CHECKPOINT_TEMPLATES = "llmapi"
MODEL_YAML = "model.yaml"
# Of a release's `serving`, what the LLM API has an argument for; the rest is trtllm-serve's own.
_ARGUMENTS = ("num_postprocess_workers",)
_SETTINGS = ("cancellation_check_period_ms", "decoupled_mode")


def model_yaml(
    facts: EngineFacts,
    *,
    engine_dir: str,
    runtime_config: Mapping[str, Any],
    settings: Mapping[str, bool | int | float | str],
) -> bytes:
    """The file's content.

    Args:
        facts: of the checkpoint; its ranks and sizes are in its serving settings.
        engine_dir: where the server finds it.
        runtime_config: of the release.
        settings: of the target: `decoupled_mode` and `cancellation_check_period_ms`.

    Raises:
        Incompatible: reference `checkpoint-without-serving`.
        InvalidInput: reference `setting-unknown`.
    """
    serving = facts.details.get("serving")
    if not isinstance(serving, dict):
        raise Incompatible(
            "the checkpoint has no serving.yaml: nothing says how it was judged",
            hint="build it with enginectl, which writes one",
            reference="checkpoint-without-serving",
        )
    if unknown := sorted(set(settings) - set(_SETTINGS)):
        raise InvalidInput(
            f"settings: unknown {unknown[0]!r} for a checkpoint; there are {', '.join(_SETTINGS)}",
            hint="how a checkpoint is served is promoted with it: change its spec instead",
            reference="setting-unknown",
        )
    released = {str(k).replace("-", "_"): v for k, v in runtime_config.get("serving", {}).items()}
    triton: dict[str, Any] = {
        # The backend batches by itself and takes one request at a time from Triton.
        "max_batch_size": 0,
        "decoupled": settings.get("decoupled_mode", True),
    }
    if (period := settings.get("cancellation_check_period_ms")) is not None:
        triton["cancellation_check_period_ms"] = period
    document = {
        **serving,
        **{key: released[key] for key in _ARGUMENTS if key in released},
        "backend": "pytorch",
        "model": engine_dir,
        "tokenizer": engine_dir,
        "triton_config": triton,
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
