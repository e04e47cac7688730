"""How a checkpoint says that it is quantised: `hf_quant_config.json`, and the same in config.json.

Pure. Source: modelopt/torch/export (convert_hf_config.py, quant_utils.py) of
NVIDIA/TensorRT-Model-Optimizer at 5a4242fa. Both files hold the same facts; where both are there
they must agree, since the server reads one of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine_pipeline.backends.checkpoint.schemes import MIXED, known_algos
from engine_registry.errors import InvalidInput

QUANT_FILE, CONFIG_FILE = "hf_quant_config.json", "config.json"
METHOD = "modelopt"
_HINT = "take a checkpoint that ModelOpt's hf_ptq.py exported, or one that is not quantised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """What a checkpoint's files say of its precision.

    Attributes:
        quant_algo, cache_algo: of weights and KV cache; None if they are not quantised.
        producer: the tool and version that wrote it.
        excluded: modules that stay at 16 bits.
        layer_algos: schemes of single layers, for mixed precision.
    """

    quant_algo: str | None = None
    cache_algo: str | None = None
    group_size: int | None = None
    producer: str | None = None
    excluded: tuple[str, ...] = ()
    layer_algos: tuple[str, ...] = ()


def read_quantisation(config: dict[str, Any], quant_file: bytes | None, name: str) -> Quantisation:
    """The quantisation of a checkpoint.

    Args:
        config: its config.json.
        quant_file: its hf_quant_config.json; None if it has none.
        name: the checkpoint, for errors.

    Raises:
        InvalidInput: `checkpoint-quantisation-unreadable`, `checkpoint-quantised-otherwise`,
            `checkpoint-contradicts`.
    """
    inside = _from_config(config, name)
    if quant_file is None:
        return inside or Quantisation()
    beside = _from_file(quant_file, name)
    if inside is not None and (inside.quant_algo, inside.cache_algo) != (
        beside.quant_algo,
        beside.cache_algo,
    ):
        raise InvalidInput(
            f"{name}: {QUANT_FILE} says weights {beside.quant_algo} and KV cache "
            f"{beside.cache_algo}, {CONFIG_FILE} says {inside.quant_algo} and {inside.cache_algo}",
            hint="the two come from different exports: export the checkpoint again",
            reference="checkpoint-contradicts",
        )
    return beside


def _from_file(data: bytes, name: str) -> Quantisation:
    try:
        value = json.loads(data)
        stated = value["quantization"]
        producer = value.get("producer") or {}
        layers = stated.get("quantized_layers") or {}
        algos = sorted({str(layer["quant_algo"]) for layer in layers.values()})
        found = Quantisation(
            quant_algo=stated["quant_algo"],
            cache_algo=stated.get("kv_cache_quant_algo"),
            group_size=stated.get("group_size"),
            producer=_producer(producer),
            excluded=tuple(stated.get("exclude_modules") or ()),
            layer_algos=tuple(algos),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            f"{name}: {QUANT_FILE}: not what ModelOpt writes: {type(error).__name__}: {error}",
            hint=_HINT,
            reference="checkpoint-quantisation-unreadable",
        ) from error
    strange = sorted(set(algos) - known_algos())
    if found.quant_algo == MIXED and strange:
        raise InvalidInput(
            f"{name}: {QUANT_FILE}: layers quantised as {', '.join(strange)}; known: "
            + ", ".join(sorted(known_algos())),
            hint=_HINT,
            reference="checkpoint-quantised-otherwise",
        )
    return found


def _from_config(config: dict[str, Any], name: str) -> Quantisation | None:
    stated = config.get("quantization_config")
    if not isinstance(stated, dict):
        return None
    method = stated.get("quant_method")
    if method != METHOD:
        raise InvalidInput(
            f"{name}: {CONFIG_FILE} says quant_method {method!r}, this kind takes {METHOD!r}",
            hint=_HINT,
            reference="checkpoint-quantised-otherwise",
        )
    excluded = stated.get("ignore")
    return Quantisation(
        quant_algo=stated.get("quant_algo"),
        cache_algo=_cache_algo(stated.get("kv_cache_scheme")),
        producer=_producer(stated.get("producer")),
        excluded=tuple(excluded) if isinstance(excluded, list) else (),
    )


def _cache_algo(scheme: Any) -> str | None:
    if not isinstance(scheme, dict):
        return None
    return f"{'FP' if scheme.get('type') == 'float' else 'INT'}{scheme.get('num_bits')}"


def _producer(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return " ".join(str(value[key]) for key in ("name", "version") if key in value) or None
