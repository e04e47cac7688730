"""`trtllm-serve`: loads an engine or a checkpoint as strictly as the real one, then chats."""

import argparse
import json
import re
import sys
import time
from pathlib import Path

from .chat import serve_forever
from .plan_file import read_plan
from .settings import facts, fail_as_told, message, say, settings, sm_of, visible_gpus

# Settings of a checkpoint that the server takes from YAML; LlmArgs refuses all others.
_YAML_FIELDS = {
    "cuda_graph_config",
    "enable_chunked_prefill",
    "enable_iter_perf_stats",
    "guided_decoding_backend",
    "kv_cache_config",
    "max_batch_size",
    "max_input_len",
    "max_num_tokens",
    "max_seq_len",
    "moe_expert_parallel_size",
    "pipeline_parallel_size",
    "return_perf_metrics",
    "tensor_parallel_size",
}
_CACHE_FIELDS = {"dtype", "enable_block_reuse", "free_gpu_memory_fraction"}


class ClickParser(argparse.ArgumentParser):
    """argparse with the words of click, which the real command is made with."""

    def error(self, text):
        print(f"Usage: trtllm-serve [OPTIONS] MODEL\n\nError: {text}", file=sys.stderr)
        raise SystemExit(2)


def main(tool):
    known, chosen = facts(), settings()
    arguments = parse(known["serve"]["flags"])
    fail_as_told(tool, known, chosen)
    model = Path(arguments.MODEL)
    if not (model / "config.json").is_file():
        return refuse(message(known, "load", "missing_config") + str(model / "config.json"))
    config = json.loads((model / "config.json").read_text())
    backend = getattr(arguments, "backend", None)
    if "pretrained_config" in config:
        if backend not in (None, "tensorrt", "trt"):
            return refuse(f"{model} is no checkpoint that the {backend} backend can load")
        ranks = load_engine(model, config, arguments, known, chosen)
    else:
        if backend == "tensorrt":
            return refuse(f"{model} is no TensorRT engine")
        ranks = load_checkpoint(model, arguments)
    if ranks is None:
        return 1
    if ranks > visible_gpus(chosen):
        return refuse(f"{ranks} ranks, {visible_gpus(chosen)} GPUs")
    time.sleep(chosen.get("load_s", 0))
    name = getattr(arguments, "served_model_name", None) or model.name
    return serve_forever(arguments.host, arguments.port, name, known, chosen)


def parse(flags):
    parser = ClickParser(prog="trtllm-serve", allow_abbrev=False)
    parser.add_argument("MODEL")
    for name, row in flags.items():
        if name == "MODEL":
            continue
        names = [name, *row.get("aliases", [])]
        if row["type"] == "flag":
            parser.add_argument(*names, action="store_true")
            continue
        kinds = {"int": int, "float": float}
        choices = row.get("choices")
        if choices is not None:
            # One of them says in words that `trt` is an alias.
            choices = [choice.split(" ")[0] for choice in choices]
            choices += ["trt"] if "tensorrt" in choices else []
        parser.add_argument(
            *names,
            type=kinds.get(row["type"], str),
            default=row.get("default"),
            choices=choices,
        )
    words = sys.argv[1:]
    # `trtllm-serve serve MODEL` is the same command.
    return parser.parse_args(words[1:] if words[:1] == ["serve"] else words)


def load_engine(model, config, arguments, known, chosen):
    """How many ranks were loaded; None after saying why not."""
    if arguments.tokenizer is None or not list(Path(arguments.tokenizer).glob("tokenizer*")):
        return refuse(f"cannot load a tokenizer from {arguments.tokenizer}", None)
    ranks = config["pretrained_config"]["mapping"]["world_size"]
    for rank in range(ranks):
        path = model / f"rank{rank}.engine"
        if not path.is_file():
            return refuse(message(known, "load", "missing_engine_file") + str(path), None)
        try:
            version, bound, weights = read_plan(path)
        except ValueError as error:
            return refuse(f"{error}\n{message(known, 'load', 'generic')}", None)
        if version != known["tensorrt"]:
            return refuse(
                "[E] Error Code 1: Serialization (Serialization assertion stdVersionRead == "
                "kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: "
                f"239, Serialized Engine Version: 238)\n{message(known, 'load', 'generic')}",
                None,
            )
        mine = sm_of(chosen, known)
        if bound["sm"] != mine:
            return refuse(
                "[E] 6: The engine plan file is generated on an incompatible device, expecting "
                f"compute {mine / 10:.1f} got compute {bound['sm'] / 10:.1f}, please rebuild.\n"
                f"{message(known, 'load', 'generic')}",
                None,
            )
        if bound["tensorrt_llm"] != known["version"]:
            return refuse(message(known, "load", "wrong_trtllm"), None)
        if bound["board"] != chosen["board"]:
            say(f"[W] {message(known, 'load', 'same_sm_other_sku')}")
        managed = model / f"rank{rank}_managed_weights.safetensors"
        if not weights and not managed.is_file():
            return refuse(message(known, "load", "generic"), None)
    return ranks


def load_checkpoint(model, arguments):
    yaml = getattr(arguments, "extra_llm_api_options", None) or getattr(arguments, "config", None)
    if not list(model.glob("*.safetensors")):
        return refuse(f"no file named model.safetensors found in directory {model}", None)
    if not list(model.glob("tokenizer*")):
        return refuse(f"cannot load a tokenizer from {model}", None)
    options = read_yaml(Path(yaml)) if yaml else {}
    strange = set(options) - _YAML_FIELDS
    strange |= set(options.get("kv_cache_config", {})) - _CACHE_FIELDS
    if strange:
        return refuse(f"extra fields not permitted: {', '.join(sorted(strange))}", None)
    tensor = options.get("tensor_parallel_size", 1)
    return tensor * options.get("pipeline_parallel_size", 1)


def read_yaml(path):
    """The part of YAML that settings are written in: nested mappings of scalars."""
    root = {}
    stack = [(-1, root)]
    for line in path.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"( *)([a-z_]+):(?: (.+))?", line)
        if match is None:
            raise ValueError(f"{path.name}: cannot read {line!r}")
        depth, key, value = len(match[1]), match[2], match[3]
        while stack[-1][0] >= depth:
            stack.pop()
        if value is None:
            stack[-1][1][key] = {}
            stack.append((depth, stack[-1][1][key]))
        else:
            stack[-1][1][key] = json.loads(value)
    return root


def refuse(text, code=1):
    print(text, file=sys.stderr, flush=True)
    return code
