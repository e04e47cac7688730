"""The specs that a reader would copy: valid, and buildable for the models they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_pipeline.backends.checkpoint.backend import CheckpointBackend
from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_pipeline.capacity.estimate import sizing_of_spec
from engine_pipeline.capacity.verdict import capacity_on
from engine_pipeline.spec.load import load_spec
from engine_pipeline.spec.model import EngineKind
from engine_pipeline.spec.shape import shape_of_config
from tests.unit.trtllm.models import LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN_7B, lock

SPECS = Path(__file__).parents[3] / "build_specs"
BACKENDS = {
    EngineKind.TRTLLM_ENGINE: TrtllmBackend(),
    EngineKind.TRTLLM_CHECKPOINT: CheckpointBackend(),
}
# What the hub's config.json of each model says, as far as the plan reads it.
MODELS = {
    "llama-3.1-8b-instruct": LLAMA_8B,
    "llama-3.3-70b-instruct": LLAMA_70B,
    "mixtral-8x7b-instruct": MIXTRAL,
    "qwen2.5-7b-instruct": QWEN_7B,
}
FILES = sorted(path for path in SPECS.glob("*/*.yaml") if path.parent.name in MODELS)


def locked(path):
    spec = load_spec(path)
    files = {"config.json": b"{}", "model.safetensors": b"x", "tokenizer.json": b"{}"}
    if spec.backend.kind is EngineKind.TRTLLM_CHECKPOINT:
        files["hf_quant_config.json"] = b"{}"
    return lock(spec, MODELS[spec.model.name], files, image=spec.backend.image)


def test_there_is_one_for_each_case():
    assert [str(path.relative_to(SPECS)) for path in FILES] == [
        "llama-3.1-8b-instruct/a100-sxm-80gb-fp16.yaml",
        "llama-3.1-8b-instruct/h100-sxm-80gb-fp8.yaml",
        "llama-3.1-8b-instruct/l40s-48gb-int4.yaml",
        "llama-3.3-70b-instruct/b200-sxm-180gb-nvfp4.yaml",
        "llama-3.3-70b-instruct/h100-sxm-80gb-fp8.yaml",
        "mixtral-8x7b-instruct/h100-sxm-80gb-fp8.yaml",
        "qwen2.5-7b-instruct/rtx-4090-24gb-int4.yaml",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_spec_is_named_after_what_it_builds_and_can_be_planned(path):
    made = locked(path)
    spec = made.spec
    assert path.stem == f"{spec.target.sku}-{spec.precision.weights}"
    assert path.parent.name == spec.model.name
    backend = BACKENDS[spec.backend.kind]
    backend.check(spec)
    steps = backend.plan(made)
    toolkit = [step for step in steps if step.name in ("checkpoint", "compile")]
    assert all(step.image and "@sha256:" in step.image for step in toolkit)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_spec_asks_for_no_more_sequences_than_would_be_served(path):
    spec = load_spec(path)
    shape = shape_of_config(MODELS[spec.model.name])
    assert shape is not None
    found = capacity_on(sizing_of_spec(spec, shape), spec.target.sku)
    assert found is not None
    # At full length; most sequences are shorter, so a third of the limit is generous.
    assert found.largest_batch * 3 >= spec.limits.max_batch_size
