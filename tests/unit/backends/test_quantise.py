"""F16 GGUF → INT8 and INT4 GGUF."""

from __future__ import annotations

from collections import Counter

import gguf
import numpy as np
import pytest

from engine_pipeline.backends.llama_cpp import half
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.quantise import quantise
from engine_pipeline.backends.llama_cpp.recipes import RECIPES, choose, recipes_of
from engine_pipeline.progress import Silent
from engine_pipeline.spec.model import WeightPrecision
from engine_registry.errors import InvalidInput


@pytest.fixture
def parent(tmp_path, toys):
    path = tmp_path / "f16.gguf"
    toys.write_gguf(path, toys.Toy())
    return path


def quantised(parent, recipe, allowed=()):
    output = parent.with_name(f"{recipe}.gguf")
    quantise(RECIPES[recipe], allowed, parent, output, Silent())
    return output


@pytest.mark.parametrize(
    ("recipe", "output"), [("q8_0", "Q8_0"), ("q4_0", "Q8_0"), ("q4_1", "Q8_0")]
)
def test_matrices_hold_what_the_numpy_quantiser_gives(parent, recipe, output):
    before, after = gguf.GGUFReader(parent), gguf.GGUFReader(quantised(parent, recipe))
    for old, new in zip(before.tensors, after.tensors, strict=True):
        if old.name.endswith("norm.weight"):
            assert new.tensor_type.name == "F32"
            assert new.data.tobytes() == old.data.tobytes()
            continue
        wanted = output if old.name == "token_embd.weight" else recipe.upper()
        assert new.tensor_type.name == wanted
        values = np.array(old.data).astype(np.float32)
        assert new.data.tobytes() == gguf.quants.quantize(values, new.tensor_type).tobytes()


@pytest.mark.parametrize(("recipe", "file_type"), [("q8_0", 7), ("q4_0", 2), ("q4_1", 3)])
def test_the_file_names_its_type_and_keeps_all_other_metadata(parent, recipe, file_type):
    before, after = read_header(parent), read_header(quantised(parent, recipe))
    assert after.integer("general.file_type") == file_type
    assert after.integer("general.quantization_version") == 2
    changed = {key for key in after.metadata if after.metadata[key] != before.metadata.get(key)}
    assert changed == {"general.file_type", "general.quantization_version"}


def test_quantising_twice_gives_the_same_bytes(parent):
    first = quantised(parent, "q4_1").read_bytes()
    assert quantised(parent, "q4_1").read_bytes() == first


def test_working_in_small_pieces_changes_nothing(parent, monkeypatch):
    whole = quantised(parent, "q4_1").read_bytes()
    monkeypatch.setattr(half, "PIECE_ELEMENTS", 200)
    assert quantised(parent, "q4_1").read_bytes() == whole


def test_rows_that_do_not_fit_k_quants_are_refused_before_anything_is_written(parent):
    with pytest.raises(InvalidInput) as caught:
        quantised(parent, "q4_k_m")
    assert caught.value.name == "quantisation-fell-back"
    assert "Q5_0 instead of Q4_K (rows of 64, 96)" in caught.value.message
    assert "q4_1" in caught.value.hint
    assert "q5_0" in caught.value.hint
    assert [path.name for path in parent.parent.iterdir()] == ["f16.gguf"]


def test_a_fallback_that_the_spec_allows_is_made(parent):
    kinds = Counter(
        tensor.type_name
        for tensor in read_header(quantised(parent, "q4_k_m", ("q5_0", "q8_0"))).tensors
    )
    assert set(kinds) == {"Q5_0", "Q8_0", "F32"}


def test_k_quants_are_used_where_rows_allow_them(tmp_path, toys):
    toys.write_gguf(tmp_path / "f16.gguf", toys.Toy(hidden=256, feed_forward=512))
    kinds = {
        tensor.name: tensor.type_name
        for tensor in read_header(quantised(tmp_path / "f16.gguf", "q4_k_m")).tensors
    }
    assert kinds["token_embd.weight"] == "Q6_K"
    assert kinds["blk.0.attn_q.weight"] == "Q4_K"
    assert kinds["blk.1.ffn_down.weight"] == "Q6_K"


def test_the_mix_of_a_30_layer_model_is_the_one_llama_cpp_makes():
    # SmolLM2-135M through llama.cpp's quantiser: 14 of 30 down projections at Q6_K.
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(30)]
    kinds = Counter(
        choose(RECIPES["q4_k_m"], name, (576, 1536), layers=30, tied=True).given for name in names
    )
    assert kinds == {"Q4_K": 16, "Q6_K": 14}


def test_a_row_no_block_type_fits_stays_f16():
    choice = choose(RECIPES["q8_0"], "blk.0.ffn_up.weight", (8, 50), layers=1, tied=True)
    assert (choice.wanted, choice.given) == ("Q8_0", "F16")


def test_int4_means_q4_1_unless_the_spec_says_otherwise():
    assert recipes_of(WeightPrecision.INT4)[0] == "q4_1"
    assert set(recipes_of(WeightPrecision.INT4)) == {"q4_0", "q4_1", "q4_k_m"}
