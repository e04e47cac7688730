"""The product's tables against the facts they were taken from, and code without version chains."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import engine_pipeline
from engine_pipeline.backends.trtllm.build_flags import build_versions, flags_of, refused_plugins
from engine_pipeline.backends.trtllm.families import convert_script, family_called, quantize_script
from engine_pipeline.backends.trtllm.recipes import qformats_of, recipe_called, recipes_of
from engine_pipeline.spec.hardware import GpuSku, find_sku, sku_names
from engine_pipeline.spec.model import EngineKind
from tests.standin.install import facts_of

FACTS = Path(__file__).parents[2] / "data" / "trtllm" / "facts"
PACKAGE = Path(engine_pipeline.__file__).parent
PACKAGES = ("backends/trtllm", "backends/checkpoint", "compat", "capacity")
VERSION = re.compile(r"(?!127\.0\.0\.1)\d+\.\d+(\.\d+)*(rc\d+)?")


def read(name):
    return json.loads((FACTS / name).read_text())


@pytest.mark.parametrize("version", build_versions())
def test_every_flag_is_one_of_the_release_with_its_choices(version):
    known = facts_of(version)["build_flags"]
    for flag in flags_of(version):
        row = known[f"--{flag.name}"]
        assert (row.get("choices") is None) == (flag.choices is None)
        if flag.choices is not None:
            assert set(flag.choices) == set(row["choices"]), flag.name


@pytest.mark.parametrize("version", build_versions())
def test_scripts_lie_where_the_release_has_them(version):
    scripts = facts_of(version)["scripts"]
    assert quantize_script() in scripts
    for name in ("llama", "mixtral", "qwen", "gemma", "phi", "gpt"):
        assert convert_script(family_called(name), version) in scripts


@pytest.mark.parametrize("version", build_versions())
def test_quantize_py_makes_what_the_release_offers(version):
    offered = facts_of(version)["scripts"][quantize_script()]["--qformat"]["choices"]
    # A row-wise variant of FP8 that no recipe here asks for.
    assert qformats_of(version) == set(offered) - {"fp8_pc_pt"}


def test_recipes_are_called_what_the_checkpoint_calls_them():
    algos = read("convert_flags.json")["behaviour"]["qformat_to_quant_algo"]
    for name in ("fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "nvfp4"):
        recipe = recipe_called(name)
        assert recipe is not None
        assert recipe.quant_algo == algos[recipe.qformat]


def test_plugins_refused_on_blackwell_are_all_known():
    facts = read("gpus.json")["refused_plugins_on_sm100"]
    assert set(refused_plugins(100)) == set(facts["plugins"])
    assert refused_plugins(90) == ()


def test_boards_do_what_the_facts_say_of_them():
    """No board is given a precision that the facts do not give it."""
    skus = [sku for name in sku_names() if isinstance(sku := find_sku(name), GpuSku)]
    pairs = [
        (gpu, sku)
        for gpu in read("gpus.json")["gpus"]
        for sku in skus
        if gpu["nvml_name"] in sku.nvml_names
    ]
    assert len(pairs) > 30
    for gpu, sku in pairs:
        assert sku.sm == gpu["sm"]
        abilities = sku.kinds.get(EngineKind.TRTLLM_ENGINE)
        for weights in abilities.weights if abilities else ():
            recipes = [recipe_called(name) for name in recipes_of(weights)]
            able = [r.name for r in recipes if r is not None and r.min_sm <= sku.sm]
            assert set(able) & set(gpu["precisions_trt_engine"]), (sku.name, weights)


@pytest.mark.parametrize("package", PACKAGES)
def test_code_never_asks_which_version_it_is(package):
    """Versions are in tables: no literal of one stands in the code."""
    for path in (PACKAGE / package).glob("*.py"):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = VERSION.fullmatch(node.value)
                assert id(node) in docs or not found, f"{path.name}: {node.value}"
