"""GGUF of any type → F16 GGUF."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from engine_pipeline.backends.llama_cpp.convert import convert
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.progress import Silent
from engine_registry.errors import InvalidInput


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


def converted(source, tmp_path):
    output = tmp_path / "f16.gguf"
    convert(source, output, Silent())
    return output


def refusal(source, tmp_path):
    with pytest.raises(InvalidInput) as caught:
        converted(source, tmp_path)
    assert not (tmp_path / "f16.gguf").exists()
    return caught.value


@pytest.mark.parametrize(
    ("kind", "file_type"),
    [("Q4_0", 2), ("Q4_1", 3), ("Q5_0", 8), ("Q8_0", 7), ("Q4_K", 15), ("Q6_K", 18), ("BF16", 32)],
)
def test_each_value_is_what_the_gguf_library_reads_back(source, tmp_path, toys, kind, file_type):
    toys.write_gguf(source / "m.gguf", toys.Toy(hidden=256, feed_forward=512), kind, file_type)
    before, after = gguf.GGUFReader(source / "m.gguf"), gguf.GGUFReader(converted(source, tmp_path))
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert old.name == new.name
        values = gguf.quants.dequantize(old.data, old.tensor_type)
        if old.name.endswith("norm.weight"):
            assert new.tensor_type.name == "F32"
            assert new.data.tobytes() == values.tobytes()
        else:
            assert new.tensor_type.name == "F16"
            assert new.data.tobytes() == values.astype(np.float16).tobytes()


def test_metadata_comes_out_byte_for_byte_except_the_file_type(source, tmp_path, toys):
    toys.write_gguf(source / "m.gguf", toys.Toy(), "Q4_1", 3)
    before = read_header(source / "m.gguf")
    after = read_header(converted(source, tmp_path))
    assert list(before.metadata) == list(after.metadata)
    changed = {key for key in before.metadata if before.metadata[key] != after.metadata[key]}
    assert changed == {"general.file_type"}
    assert after.integer("general.file_type") == 1


def test_a_source_that_is_f16_already_comes_out_with_the_same_weights(source, tmp_path, toys):
    toys.write_gguf(source / "m.gguf", toys.Toy(), "F16")
    assert converted(source, tmp_path).read_bytes() == (source / "m.gguf").read_bytes()


def test_a_llama_file_of_f32_becomes_f16_with_vectors_kept(source, tmp_path, toys):
    toys.write_gguf(source / "m.gguf", toys.Toy(), "F32", 0)
    kinds = {
        tensor.name: tensor.type_name for tensor in read_header(converted(source, tmp_path)).tensors
    }
    assert kinds["blk.0.attn_q.weight"] == "F16"
    assert kinds["blk.0.attn_norm.weight"] == "F32"


def test_an_f32_file_of_an_unknown_architecture_is_refused_by_name(source, tmp_path):
    writer = gguf.GGUFWriter(source / "m.gguf", "mamba")
    writer.add_tensor("blk.0.ssm_conv1d.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    error = refusal(source, tmp_path)
    assert error.name == "architecture-unsupported"
    assert "mamba" in error.message


def test_a_matrix_kept_f32_in_a_quantised_file_stays_f32(source, tmp_path):
    writer = gguf.GGUFWriter(source / "m.gguf", "mamba")
    writer.add_tensor("blk.0.ssm_conv1d.weight", np.ones((4, 32), dtype=np.float32))
    writer.add_tensor("blk.0.ssm_in.weight", np.ones((4, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    kinds = [tensor.type_name for tensor in read_header(converted(source, tmp_path)).tensors]
    assert kinds == ["F32", "F16"]


def test_a_value_beyond_f16_is_refused_and_names_tensor_and_value(source, tmp_path, toys):
    toy = toys.Toy()
    toy.weights["blk.1.ffn_up.weight"][3, 5] = 1e6
    toys.write_gguf(source / "m.gguf", toy, "F32", 0)
    error = refusal(source, tmp_path)
    assert error.name == "weights-beyond-f16"
    assert "blk.1.ffn_up.weight" in error.message
    assert "1e+06" in error.message


def test_one_part_of_several_is_refused(source, tmp_path, toys):
    toys.write_gguf(source / "m.gguf", toys.Toy(), split__count=3)
    error = refusal(source, tmp_path)
    assert error.name == "gguf-split"
    assert "3" in error.message


def test_two_models_in_a_source_are_refused_by_name(source, tmp_path, toys):
    for name in ("a.gguf", "b.gguf"):
        toys.write_gguf(source / name, toys.Toy())
    error = refusal(source, tmp_path)
    assert error.name == "source-ambiguous"
    assert "a.gguf, b.gguf" in error.message


def test_a_source_without_a_model_is_refused(source, tmp_path):
    (source / "README.md").write_text("nothing here")
    assert refusal(source, tmp_path).name == "source-without-model"
