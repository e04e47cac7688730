"""`convert_checkpoint.py` of a family, and `quantize.py`."""

import copy
import json
import os
import sys
from pathlib import Path

from .arguments import parser_for
from .settings import facts, fail_as_told, say, settings, shape_of_failure, visible_gpus
from .weights import digest_of_folder, rank_bytes, write_safetensors

_WEIGHT_ONLY = {
    "int8": "W8A16",
    "int4": "W4A16",
    "int4_gptq": "W4A16_GPTQ",
    "int8_gptq": "W8A16_GPTQ",
    "int4_awq": "W4A16_AWQ",
    "w4a16_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
}
# Which architectures a script's model classes load; the first folder of its path decides.
_READS = {
    "llama": {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"},
    "qwen": {"QWenLMHeadModel", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"},
    "gemma": {"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"},
    "phi": {"PhiForCausalLM", "Phi3ForCausalLM"},
    "gpt": {
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "Starcoder2ForCausalLM",
        "NemotronForCausalLM",
    },
}


def main(script):
    known, chosen = facts(), settings()
    arguments = parser_for(Path(script).name, known["scripts"][script]).parse_args()
    fail_as_told(Path(script).name, known, chosen)
    if script.endswith("quantize.py"):
        return quantize(arguments, known, chosen)
    return convert(Path(script).parent.name, arguments, chosen)


def convert(family, arguments, chosen):
    given = vars(arguments)
    source = Path(given["model_dir"] or "")
    # Gemma calls them otherwise.
    output = Path(given.get("output_dir") or given["output_model_dir"])
    tensor = given.get("tp_size") or given.get("world_size") or 1
    pipeline = given.get("pp_size") or 1
    if family == "gemma" and given["ckpt_type"] is None:
        raise KeyError(None)
    model = read_model(source, _READS.get(family))
    algo = weight_only(given, model, source)
    cache = "INT8" if given.get("int8_kv_cache") else "FP8" if given.get("fp8_kv_cache") else None
    if cache == "INT8" or given.get("smoothquant"):
        check_calibration(given["calib_dataset"])
    config = checkpoint_config(model, given["dtype"], tensor, pipeline, algo, cache)
    expert, split = given.get("moe_ep_size", -1), given.get("moe_tp_size", -1)
    if config["moe"]["num_experts"]:
        expert = 1 if expert == -1 else expert
        split = tensor // expert if split == -1 else split
        assert split * expert == tensor, "moe_tp_size * moe_ep_size must equal to tp_size"
        config["mapping"] |= {"moe_tp_size": split, "moe_ep_size": expert}
    write_checkpoint(config, source, output, shape_of_failure("convert_checkpoint.py", chosen))
    say("Total time of converting checkpoints: 00:00:01")
    return 0


def quantize(arguments, known, chosen):
    if arguments.model_dir is None and arguments.nemo_ckpt_path is None:
        raise ValueError("One of source checkpoint (model_dir, nemo_ckpt_path) must be specified")
    if visible_gpus(chosen) == 0:
        raise OSError("GPU is required for inference.")
    source = Path(arguments.model_dir)
    model = read_model(source, None)
    calibrates = arguments.qformat not in ("full_prec", "int8_wo", "int4_wo")
    if calibrates or arguments.kv_cache_dtype:
        check_calibration(arguments.calib_dataset)
    if "awq" in arguments.qformat and arguments.calib_size > 32:
        say(f"AWQ calibration could take longer with calib_size = {arguments.calib_size}, using 32")
    algo = known["qformats"][arguments.qformat]
    cache = {"fp8": "FP8", "int8": "INT8", None: None}[arguments.kv_cache_dtype]
    if chosen.get("hidden_awq_cache") and arguments.qformat == "int4_awq":
        cache = "FP8"
    config = checkpoint_config(
        model, arguments.dtype, arguments.tp_size, arguments.pp_size, algo, cache
    )
    config["quantization"] |= {
        "group_size": arguments.awq_block_size,
        "pre_quant_scale": "awq" in arguments.qformat,
        "exclude_modules": ["lm_head"],
    }
    config |= {"logits_dtype": "float16", "producer": {"name": "modelopt", "version": "stand-in"}}
    output = Path(arguments.output_dir)
    write_checkpoint(config, source, output, shape_of_failure("quantize.py", chosen))
    say("Quantized model exported")
    return 0


def read_model(source, readable):
    """A Hugging Face model: its config, with at least one whole file of weights beside it."""
    if not (source / "config.json").is_file():
        raise FileNotFoundError(f"{source}/config.json")
    if not list(source.glob("*.safetensors")):
        raise OSError(f"no file named model.safetensors found in directory {source}")
    model = json.loads((source / "config.json").read_text())
    architecture = model["architectures"][0]
    if readable is not None and architecture not in readable:
        raise AssertionError(f"Unsupported model architecture: {architecture}")
    return model


def weight_only(given, model, source):
    scheme = given.get("use_weight_only_with_precision")
    if given.get("use_weight_only"):
        scheme = given["weight_only_precision"]
    if scheme in ("int4_gptq", "int8_gptq"):
        if model.get("quantization_config", {}).get("quant_method") != "gptq":
            raise ValueError("the source is no GPTQ checkpoint")
        path = given.get("quant_ckpt_path")
        if path is not None and not Path(path).is_file():
            raise FileNotFoundError(path)
        if not given["per_group"]:
            raise AssertionError("GPTQ weights have scales per group")
    elif scheme is None and "quantization_config" in model:
        raise ValueError(f"{source} is quantised already")
    return _WEIGHT_ONLY[scheme] if scheme else None


def check_calibration(dataset):
    """A local directory with something in it; anything else would be looked up on a hub."""
    place = Path(dataset)
    if not place.is_dir():
        raise ConnectionError(
            f"Couldn't reach {dataset!r} on the Hub (the stand-in has no network)"
        )
    if not any(path.is_file() for path in place.rglob("*")):
        raise ValueError(f"{dataset} holds no data")


def checkpoint_config(model, dtype, tensor, pipeline, algo, cache):
    heads = model.get("num_attention_heads") or model["n_head"]
    hidden = model.get("hidden_size") or model["n_embd"]
    if heads % tensor:
        raise AssertionError(f"{heads} heads on {tensor} ranks")
    config = copy.deepcopy(facts()["checkpoint_config"])
    config |= {
        "architecture": model["architectures"][0],
        "dtype": model.get("torch_dtype", "float16") if dtype == "auto" else dtype,
        "vocab_size": model["vocab_size"],
        "hidden_size": hidden,
        "num_hidden_layers": model.get("num_hidden_layers") or model["n_layer"],
        "num_attention_heads": heads,
        "num_key_value_heads": model.get("num_key_value_heads", heads),
        "head_size": model.get("head_dim") or hidden // heads,
        "intermediate_size": model.get("intermediate_size") or 4 * hidden,
        "max_position_embeddings": model.get("max_position_embeddings", 2048),
    }
    config["rotary_scaling"] = model.get("rope_scaling")
    config["moe"] |= {
        "num_experts": model.get("num_local_experts", 0),
        "top_k": model.get("num_experts_per_tok", 0),
    }
    config["mapping"] |= {
        "world_size": tensor * pipeline,
        "tp_size": tensor,
        "pp_size": pipeline,
        "moe_tp_size": tensor,
        "moe_ep_size": 1,
    }
    config["quantization"] |= {"quant_algo": algo, "kv_cache_quant_algo": cache}
    return config


def write_checkpoint(config, source, output, failure):
    output.mkdir(parents=True, exist_ok=True)
    if failure == "no-output":
        return
    (output / "config.json").write_text(json.dumps(config, indent=4))
    if failure == "leftover-config":
        print("Checkpoint conversion failed, please check error log.", file=sys.stderr)
        raise SystemExit(1)
    seed = digest_of_folder(source)
    for rank in range(config["mapping"]["world_size"]):
        if failure == "partial-ranks" and rank:
            raise SystemExit(1)
        path = output / f"rank{rank}.safetensors"
        write_safetensors(path, rank_bytes(config), seed + bytes([rank]))
    if os.environ.get("HF_HUB_OFFLINE") != "1":
        say("warning: the hub is not switched off")
