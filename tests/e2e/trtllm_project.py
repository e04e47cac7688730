"""A project with TensorRT-LLM specs on a machine with boards of a recording and a Docker Engine.

What is real: the command line as a process, the Docker Engine, the images and the containers. What
is not: the boards (a recording in NVML's place) and the toolkit (the stand-in, a test double).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine_pipeline.build.gpu_lease import lock_directory
from engine_pipeline.runners.docker.owner import OURS
from tests.e2e.conftest import ROOT, Project, Ran
from tests.servers.dockerd import DockerDaemon, shared_registry
from tests.servers.gpus import answers, environment
from tests.servers.python_image import python_image
from tests.standin.install import image_files

VERSION = "1.2.1"
PRODUCT = "toy/h100-sxm-80gb"
STAGING, PROD = f"{PRODUCT}/staging", f"{PRODUCT}/prod"
# The least driver that goes with the release; the recording's own is older.
DRIVER = "590.44.01"
LIMIT_S = 60
# Small enough to be written in a moment, with every dimension that a checkpoint states.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QUANTISED = {
    "producer": {"name": "modelopt", "version": "0.40.0"},
    "quantization": {
        "quant_algo": "FP8",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    },
}
ANSWERS = [["capital of France", "The capital of France is Paris."], ["Repeat", "a small blue car"]]

SUITE = """\
schema_version: 1
name: short
owner: the tests
description: Two prompts that every healthy build answers.
model: toy
reference: {spec: toy/h100-sxm-80gb-fp16, note: written by hand}
sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 24}
cases: [cases.yaml]
"""
CASES = """\
cases:
  - id: capital-of-france
    tags: [facts]
    must: true
    messages: [{role: user, content: "What is the capital of France?"}]
    checks: [{kind: contains, all_of: [Paris]}]
  - id: repeat
    tags: [copying]
    messages: [{role: user, content: "Repeat after me: a small blue car"}]
    checks: [{kind: contains, all_of: [a small blue car]}]
"""
CHANNELS = """\
schema_version: 1
gates:
  short:
    suite: short
    load_timeout_s: 60
    quality: {min_score: 0.9}
    performance:
      {requests: 20, concurrency: 2, output_tokens: 4, prompt_words: 8, warmup_requests: 1,
       max_ttft_p95_ms: 600000, min_output_tokens_per_s: 0.1}
policies:
  - products: ["toy/*"]
    channels:
      staging: {gates: [short]}
      prod: {gates: [short], upstream: staging}
"""


@dataclass
class GpuProject(Project):
    """A project beside a daemon; specs are added by `spec`."""

    def spec(self, name: str, *, image: str, **changes: Any) -> str:
        """Write `build_specs/toy/NAME.yaml` with these fields; nested ones by `section__field`."""
        value: dict[str, Any] = {
            "schema_version": 1,
            "model": {"name": "toy", "source": "file://../../models/plain", "revision": "v1"},
            "target": {"sku": "h100-sxm-80gb"},
            "precision": {"weights": "fp16", "kv_cache": "fp16"},
            "backend": {"kind": "trtllm-engine", "version": VERSION, "image": image, "options": {}},
            "limits": {
                "max_batch_size": 8,
                "max_input_tokens": 512,
                "max_sequence_tokens": 1024,
                "max_batch_tokens": 2048,
            },
            "suites": ["short"],
        }
        for path, change in changes.items():
            section, _, field = path.partition("__")
            value[section] = {**value[section], field: change} if field else change
        path = f"build_specs/toy/{name}.yaml"
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        # Every JSON document is one of YAML.
        (self.root / path).write_text(json.dumps(value))
        return path

    def boards(self, count: int = 8, *, change: Callable[[dict[str, Any]], None] | None = None):
        """What NVML says from now on: so many H100 of this project's own, idle.

        Args:
            count: how many boards.
            change: edits the answers, e.g. to put a process on a board.
        """
        said = answers("h100-sxm-8")
        devices = said["devices"][:count]
        for index, device in enumerate(devices):
            # Leases hold for the whole machine, where other tests may run.
            device["nvmlDeviceGetUUID"] = self.uuid(index)
        said |= {
            "devices": devices,
            "nvmlDeviceGetCount": count,
            "nvmlSystemGetDriverVersion": DRIVER,
        }
        if change is not None:
            change(said)
        Path(self.env["FAKE_NVML"]).write_text(json.dumps(said))

    def uuid(self, index: int) -> str:
        """The UUID of a board of this project."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.root}#{index}')}"

    def lease_path(self, index: int) -> Path:
        """The file whose lock is the lease of a board."""
        return lock_directory() / f"{self.uuid(index)}.lock"

    def logs(self) -> str:
        """Everything that steps have said."""
        return "".join(path.read_text() for path in (self.root / "cache" / "logs").iterdir())

    def failure(self, *args: str, **environment: str) -> tuple[int, dict[str, Any]]:
        """Exit code and error of a command that has to fail."""
        ran = self.run(*args, **environment)
        assert ran.code, ran.out
        return ran.code, error_of(ran)

    def close(self) -> None:
        """Remove what lies outside the project."""
        for index in range(8):
            self.lease_path(index).unlink(missing_ok=True)


def error_of(ran: Ran) -> dict[str, Any]:
    error: dict[str, Any] = ran.json["error"]
    return error


def new_gpu_project(root: Path, daemon: DockerDaemon) -> GpuProject:
    """An empty registry, both models, calibration data, suite and policies; no spec yet."""
    for name, text in {
        "golden_prompts/short/suite.yaml": SUITE,
        "golden_prompts/short/cases.yaml": CASES,
        "channels.yaml": CHANNELS,
        "calibration/data.jsonl": '{"text": "a line"}\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    write_model(root / "models" / "plain", {})
    write_model(root / "models" / "quantised", {"hf_quant_config.json": QUANTISED})
    boards = environment("h100-sxm-8") | {"FAKE_NVML": str(root / "boards.json")}
    paths = (boards["PYTHONPATH"], str(ROOT / "registry"), str(ROOT / "pipeline"))
    foreign = ("ENGINECTL_", "GITHUB_", "HF_", "CUDA_", "DOCKER_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env = {
        **inherited,
        **boards,
        **daemon.environment,
        "PYTHONPATH": os.pathsep.join(paths),
        "ENGINECTL_REGISTRY": f"file://{root}/engines",
        "ENGINECTL_CACHE": str(root / "cache"),
        "ENGINECTL_ACTOR": "the story",
        "HF_HUB_OFFLINE": "1",
    }
    project = GpuProject(root, env)
    project.boards()
    return project


def write_model(directory: Path, more: Mapping[str, Any]) -> None:
    """A Hugging Face checkpoint whose one tensor has the size of the whole model in FP8."""
    directory.mkdir(parents=True)
    size = 512 << 10
    header = json.dumps(
        {"weights": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    ).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(range(256)) * (size // 256)
    (directory / "model.safetensors").write_bytes(weights)
    files = {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": 2},
        "tokenizer.json": {"model": {"vocab": {"a": 0}}},
        "tokenizer_config.json": {"chat_template": "{{ messages }}"},
        **more,
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value))


@cache
def toolkit(name: str, settings: str = "{}") -> str:
    """The stand-in's image with these settings, pulled by its tag; as a spec would name it."""
    chosen = {"answers": ANSWERS} | json.loads(settings)
    registry = shared_registry()
    registry.add(f"tests/{name}", VERSION, python_image(image_files(VERSION, **chosen)))
    return f"{registry.host}/tests/{name}:{VERSION}"


def containers(daemon: DockerDaemon, **filters: str) -> list[Any]:
    """Every container of ours that the daemon has."""
    found: list[Any] = daemon.client().containers.list(
        all=True, ignore_removed=True, filters={"label": OURS} | filters
    )
    return found


def until(look: Callable[[], Any]) -> Any:
    """What `look` gives once it gives something."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < deadline, "waited for in vain"
        time.sleep(0.02)
    return found
