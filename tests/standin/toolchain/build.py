"""`trtllm-build`: checks the checkpoint, corrects what it is told, writes an engine directory."""

import copy
import json
import random
import sys
from pathlib import Path

from .arguments import parser_for
from .plan_file import write_plan
from .settings import (
    facts,
    fail_as_told,
    message,
    say,
    settings,
    shape_of_failure,
    sm_of,
    visible_gpus,
)
from .weights import read_safetensors, write_safetensors

_MANDATORY = (
    "architecture",
    "dtype",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
)
_SIZES = (
    "max_input_len",
    "max_seq_len",
    "max_batch_size",
    "max_beam_width",
    "max_num_tokens",
    "opt_num_tokens",
    "max_prompt_embedding_table_size",
    "max_draft_len",
    "max_encoder_input_len",
    "profiling_verbosity",
    "weight_sparsity",
    "weight_streaming",
    "enable_debug_output",
    "monitor_memory",
    "gather_context_logits",
    "gather_generation_logits",
    "input_timing_cache",
    "output_timing_cache",
)
# Boards that infer_cluster_config knows by a piece of their name.
_LABELS = {"A100-SXM4-80GB": "A100-SXM-80GB", "H100": "H100-PCIe", "L40S": "L40S", "L4": "L4"}


def main(tool):
    known, chosen = facts(), settings()
    arguments = parser_for(tool, known["build_flags"]).parse_args()
    fail_as_told(tool, known, chosen)
    say(f"TensorRT-LLM version: {known['version']}")
    if arguments.checkpoint_dir is None and arguments.model_config is None:
        raise AttributeError("'NoneType' object has no attribute 'lower'")
    gpus = visible_gpus(chosen)
    if gpus == 0:
        raise RuntimeError("no CUDA-capable device is detected")
    checkpoint = Path(arguments.checkpoint_dir)
    config = read_checkpoint(checkpoint)
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    sm = sm_of(chosen, known)
    build = build_config(arguments, config, known, chosen, sm)
    ranks = config["mapping"]["world_size"]
    workers = min(arguments.workers, gpus)
    say(f"building {ranks} ranks with {workers} workers on SM {sm}")
    failure = shape_of_failure(tool, chosen)
    if failure == "no-output":
        return 0
    engine = copy.deepcopy(known["engine_config"])
    pretrained = engine["pretrained_config"]
    kept = {key: value for key, value in config.items() if key != "mapping"}
    mapping = {
        key: config["mapping"].get(key, value) for key, value in pretrained["mapping"].items()
    }
    engine |= {
        "version": known["version"],
        "pretrained_config": kept | {"mapping": mapping},
        "build_config": build,
    }
    (output / "config.json").write_text(json.dumps(engine, indent=4))
    if failure == "leftover-config":
        print(message(known, "build", "build_failed"), file=sys.stderr)
        return 1
    managed = build["plugin_config"]["manage_weights"]
    for rank in range(ranks):
        if failure == "partial-ranks" and rank:
            print(message(known, "build", "build_failed"), file=sys.stderr)
            return 1
        write_rank(rank, checkpoint, output, known, chosen, build, managed)
        if failure == "zero-byte":
            (output / f"rank{rank}.engine").write_bytes(b"")
        say(f"Engine generated in 1.0 seconds for rank {rank}")
    if failure == "full-disk":
        fill_disk(output)
    write_timing_cache(arguments, known, sm)
    say("Build phase peak memory: 1024.00 MB, children: 512.00 MB")
    say("Total time of building all engines: 00:00:01")
    return 0


def read_checkpoint(folder):
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"[Errno 2] No such file or directory: '{folder}/config.json'")
    config = json.loads((folder / "config.json").read_text())
    for name in _MANDATORY:
        if name not in config:
            raise KeyError(name)
    if not config["architecture"].endswith(("ForCausalLM", "LMHeadModel")):
        raise AssertionError(f"Unsupported model architecture: {config['architecture']}")
    for rank in range(config["mapping"]["world_size"]):
        read_safetensors(folder / f"rank{rank}.safetensors")
    return config


def build_config(arguments, config, known, chosen, sm):
    """What the builder makes of its flags, with the corrections that are written down of it."""
    given = vars(arguments)
    build = copy.deepcopy(known["engine_config"]["build_config"])
    plugins = build["plugin_config"]
    for name in _SIZES:
        if name in build:
            build[name] = given[name]
    build["kv_cache_type"] = given.get("kv_cache_type", "paged").upper()
    build["use_strip_plan"] = given["strip_plan"]
    plugins["manage_weights"] = given["fast_build"]
    plugins["dtype"] = config["dtype"]
    for name in set(plugins) & set(given):
        plugins[name] = plugin_value(given[name])
    if "explicitly_disable_gemm_plugin" in plugins:
        plugins["explicitly_disable_gemm_plugin"] = given["gemm_plugin"] == "disable"
    refuse_contradictions(given, config, known, sm)
    adjust(build, plugins, config)
    for name, value in chosen.get("adjust", {}).items():
        (plugins if name in plugins else build)[name] = value
    if "auto_parallel_config" in build:
        label_board(build["auto_parallel_config"], given["cluster_key"], chosen["board"])
    return build


def plugin_value(word):
    return {"enable": True, "disable": False}.get(word, word) if word != "disable" else None


def refuse_contradictions(given, config, known, sm):
    quantisation = config["quantization"]
    cache, algo = quantisation["kv_cache_quant_algo"], quantisation["quant_algo"]
    if given["use_paged_context_fmha"] == "enable":
        if cache == "FP8" and algo != "FP8":
            raise RuntimeError(message(known, "build", "fp8_paged"))
        if cache == "INT8":
            raise RuntimeError(message(known, "build", "int8kv_paged"))
    elif known["version"] == "0.20.0" and (algo or cache):
        raise RuntimeError("paged context FMHA cannot be disabled for this checkpoint")
    if given["multiple_profiles"] == "enable" and given["opt_num_tokens"] is not None:
        raise ValueError(message(known, "build", "profiles_conflict"))
    if given["streamingllm"] == "enable":
        raise AssertionError("streamingllm is not supported")
    for name in known["sm100_refused"]:
        if sm >= 100 and given[name] not in (None, "disable"):
            raise NotImplementedError(f"{name}={given[name]} is not supported on SM {sm}")


def adjust(build, plugins, config):
    algo = config["quantization"]["quant_algo"]
    longest = config["max_position_embeddings"]
    if build["max_seq_len"] is None:
        build["max_seq_len"] = longest
    build["max_input_len"] = min(build["max_input_len"], build["max_seq_len"])
    at_once = build["max_seq_len"] * build["max_batch_size"]
    build["max_num_tokens"] = min(build["max_num_tokens"], at_once)
    if not plugins["multiple_profiles"]:
        wanted = build["opt_num_tokens"] or build["max_batch_size"] * build["max_beam_width"]
        build["opt_num_tokens"] = min(wanted, build["max_num_tokens"])
    for name in ("reduce_fusion", "user_buffer", "paged_state", "use_fused_mlp"):
        plugins[name] = bool(plugins[name])
    llama = "llama" in config["architecture"].lower()
    if config["mapping"]["tp_size"] == 1 or not llama:
        plugins["reduce_fusion"] = False
    plugins["user_buffer"] = plugins["user_buffer"] and plugins["reduce_fusion"]
    plugins["paged_state"] = False
    if algo not in (None, "FP8", "MIXED_PRECISION"):
        plugins["use_fused_mlp"] = False
    if config["quantization"]["kv_cache_quant_algo"] == "FP8" and plugins["use_paged_context_fmha"]:
        plugins["use_fp8_context_fmha"] = True
    for name, value in plugins.items():
        # Switches are booleans, plugins that are off are null.
        example = facts()["engine_config"]["build_config"]["plugin_config"].get(name)
        if value is None and isinstance(example, bool):
            plugins[name] = False
    if config["mapping"]["world_size"] == 1:
        plugins["nccl_plugin"] = None
    elif plugins["nccl_plugin"] == "auto":
        plugins["nccl_plugin"] = config["dtype"]


def label_board(auto_parallel, label, board):
    if label is None:
        found = [value for piece, value in _LABELS.items() if piece in board]
        label = found[0] if found else board.replace(" ", "-")
        # Measured on boards without a label, so it differs from host to host.
        auto_parallel["cluster_info"] = None if found else {"memory_bw": random.randint(900, 1100)}
    else:
        auto_parallel["cluster_info"] = None
    auto_parallel["cluster_key"] = label


def write_rank(rank, checkpoint, output, known, chosen, build, managed):
    weights = read_safetensors(checkpoint / f"rank{rank}.safetensors")
    bound = {
        "sm": sm_of(chosen, known),
        "board": chosen["board"],
        "tensorrt_llm": known["version"],
        "stripped": build["use_strip_plan"],
    }
    if managed:
        path = output / f"rank{rank}_managed_weights.safetensors"
        write_safetensors(path, len(weights), weights[:32])
    inside = b"" if managed or build["use_strip_plan"] else weights
    path = output / f"rank{rank}.engine"
    write_plan(path, known["tensorrt"], bound, inside, chosen.get("plan_bytes"))


def write_timing_cache(arguments, known, sm):
    """Tactics measured on this board; a given cache of another one is not used."""
    mine = {"tensorrt": known["tensorrt"], "sm": sm}
    given = arguments.input_timing_cache
    if given is not None and not Path(given).is_file():
        say(f"[W] timing cache {given} not found, building without it")
    elif given is not None and json.loads(Path(given).read_text()) != mine:
        say(f"[W] timing cache {given} is of another board or version, ignored")
    Path(arguments.output_timing_cache).write_text(json.dumps(mine))


def fill_disk(output):
    with (output / "rank0.engine").open("ab") as stream:
        while True:
            stream.write(bytes(1 << 20))
            stream.flush()
