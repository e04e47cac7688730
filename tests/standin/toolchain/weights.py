"""Checkpoints of the stand-in: how large a rank is, and safetensors files of that size."""

import hashlib
import json

_BITS = {"W8": 8, "FP8": 8, "W4": 4, "NVFP4": 4}


def bits_of(quant_algo):
    for start, bits in _BITS.items():
        if str(quant_algo or "").startswith(start):
            return bits
    return 16


def rank_bytes(config):
    """Bytes of one rank's weights, by the dimensions of a checkpoint's config.json."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, head = config["num_attention_heads"], config["head_size"]
    cached = config["num_key_value_heads"]
    experts = max(1, config.get("moe", {}).get("num_experts", 0))
    attention = hidden * head * (2 * heads + 2 * cached)
    mlp = 3 * hidden * config["intermediate_size"] * experts
    mapping, bits = config["mapping"], bits_of(config["quantization"]["quant_algo"])
    linear = layers * (attention + mlp) * bits // 8
    tables = 2 * config["vocab_size"] * hidden * 2
    return linear // (mapping["tp_size"] * mapping["pp_size"]) + tables


def write_safetensors(path, size, seed):
    """One tensor of `size` bytes that follow from `seed`."""
    header = json.dumps(
        {"weights": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    ).encode()
    block = hashlib.sha256(seed).digest()
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.write((block * (size // len(block) + 1))[:size])


def read_safetensors(path):
    """The tensors' bytes of one file; raises ValueError for one that is not whole."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = max(row["data_offsets"][1] for key, row in header.items() if key != "__metadata__")
    if len(data) != 8 + length + end:
        raise ValueError(f"{path.name}: {len(data)} bytes, its header says {8 + length + end}")
    return data[8 + length :]


def digest_of_folder(folder):
    """Over every weights file of a source, so that other weights give other checkpoints."""
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        state.update(path.read_bytes())
    return state.digest()
