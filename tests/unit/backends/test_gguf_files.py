"""Reading and writing GGUF files, held to the field's own library."""

from __future__ import annotations

import random
import struct

import gguf
import numpy as np
import pytest

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, array, scalar, text
from engine_pipeline.backends.llama_cpp.gguf_writer import TensorPlan, write_gguf
from engine_pipeline.progress import Silent
from engine_registry.errors import EngineCIError, InvalidInput, NotFound


@pytest.fixture
def toy_file(tmp_path, toys):
    path = tmp_path / "toy.gguf"
    toys.write_gguf(path, toys.Toy(), "Q8_0", 7)
    return path


def test_a_header_says_what_the_gguf_library_says(toy_file):
    ours, theirs = read_header(toy_file), gguf.GGUFReader(toy_file)
    assert ours.version == 3
    assert list(ours.metadata) == [name for name in theirs.fields if not name.startswith("GGUF.")]
    for key, value in ours.metadata.items():
        assert value.decode() == theirs.fields[key].contents(), key
    assert [(t.name, t.shape, t.type_name, t.offset, t.size_bytes) for t in ours.tensors] == [
        (t.name, tuple(map(int, reversed(t.shape))), t.tensor_type.name, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    ]


def test_values_of_every_type_are_read_as_written(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "all.gguf", "toy")
    wanted = {}
    for kind in gguf.GGUFValueType:
        if kind in {gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING}:
            continue
        value = True if kind is gguf.GGUFValueType.BOOL else 1.5 if "FLOAT" in kind.name else 100
        wanted[kind.name.lower()] = value
        writer.add_key_value(kind.name.lower(), value, kind)
    writer.add_string("text", "grüß dich")
    writer.add_array("texts", ["a", "", "ü"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_key_value("nested", [[1, 2], [3]], gguf.GGUFValueType.ARRAY)
    wanted |= {"text": "grüß dich", "texts": ["a", "", "ü"], "numbers": [1, -2, 3]}
    writer.add_tensor("t", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_header(tmp_path / "all.gguf").metadata
    assert {key: found[key].decode() for key in wanted} == wanted
    assert found["nested"].decode() == [[1, 2], [3]]


def test_what_is_written_equals_what_the_gguf_library_writes(tmp_path):
    vector = np.arange(7, dtype=np.float32)
    matrix = np.arange(64, dtype=np.float16).reshape(2, 32)
    theirs = gguf.GGUFWriter(tmp_path / "theirs.gguf", "toy")
    theirs.add_uint32("a", 7)
    theirs.add_float32("b", 0.1)
    theirs.add_bool("c", True)
    theirs.add_array("d", ["x", "yy"])
    theirs.add_key_value("e", [1, 2], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)
    theirs.add_tensor("v", vector)
    theirs.add_tensor("m", matrix)
    theirs.write_header_to_file()
    theirs.write_kv_data_to_file()
    theirs.write_tensors_to_file()
    theirs.close()
    metadata = {
        "general.architecture": text("toy"),
        "a": scalar(ValueType.UINT32, 7),
        "b": scalar(ValueType.FLOAT32, 0.1),
        "c": scalar(ValueType.BOOL, True),
        "d": array(ValueType.STRING, ["x", "yy"]),
        "e": array(ValueType.INT32, [1, 2]),
    }
    plans = [
        TensorPlan(name="v", shape=(7,), type_name="F32", chunks=lambda: iter([vector.data])),
        TensorPlan(
            name="m",
            shape=(2, 32),
            type_name="F16",
            chunks=lambda: iter([matrix[:1].data, matrix[1:].data]),
        ),
    ]
    write_gguf(tmp_path / "ours.gguf", metadata, plans, Silent())
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def chunks():
        yield memoryview(bytes(16))
        raise OSError(28, "No space left on device")

    plan = TensorPlan(name="v", shape=(8,), type_name="F32", chunks=chunks)
    with pytest.raises(OSError, match="No space left"):
        write_gguf(tmp_path / "x.gguf", {}, [plan], Silent())
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_of_another_length_than_its_type_needs_is_refused(tmp_path):
    plan = TensorPlan(
        name="v", shape=(8,), type_name="F32", chunks=lambda: iter([memoryview(bytes(16))])
    )
    with pytest.raises(ValueError, match="16 bytes came, its type needs 32"):
        write_gguf(tmp_path / "x.gguf", {}, [plan], Silent())


def refusal(path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_header(path)
    assert path.name in caught.value.message
    return caught.value


def test_an_absent_file_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        read_header(tmp_path / "none.gguf")


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "e.gguf").touch()
    assert refusal(tmp_path / "e.gguf").name == "gguf-empty"


def test_a_foreign_file_is_called_foreign_and_shows_how_it_begins(tmp_path):
    (tmp_path / "f.gguf").write_bytes(b"PK\x03\x04 and more")
    error = refusal(tmp_path / "f.gguf")
    assert error.name == "gguf-foreign"
    assert "PK" in error.message


@pytest.mark.parametrize(
    ("version", "said"), [(1, "version 1"), (99, "version 99"), (3 << 24, "big-endian")]
)
def test_another_version_is_refused_by_name(tmp_path, version, said):
    (tmp_path / "v.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    error = refusal(tmp_path / "v.gguf")
    assert error.name == "gguf-version-unsupported"
    assert said in error.message


def test_a_file_cut_anywhere_in_its_header_is_called_truncated(tmp_path, toy_file):
    data = toy_file.read_bytes()
    end = read_header(toy_file).tensors[0].offset
    cut = tmp_path / "cut.gguf"
    for length in [*range(8, 400), *range(400, end, 97)]:
        cut.write_bytes(data[:length])
        assert refusal(cut).name == "gguf-truncated", length


def test_a_file_cut_in_its_weights_is_called_truncated_and_names_the_tensor(tmp_path, toy_file):
    data = toy_file.read_bytes()
    last = read_header(toy_file).tensors[-1]
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(data[: last.offset + last.size_bytes - 1])
    error = refusal(cut)
    assert error.name == "gguf-truncated"
    assert last.name in error.message
    assert str(last.offset + last.size_bytes) in error.message


def test_a_header_with_any_byte_flipped_is_read_or_refused_and_never_crashes(tmp_path, toy_file):
    data = bytearray(toy_file.read_bytes())
    end = read_header(toy_file).tensors[0].offset
    dice, damaged = random.Random(5), tmp_path / "flipped.gguf"
    refused = 0
    for place in sorted(dice.sample(range(end), 400)):
        damaged.write_bytes(
            data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :]
        )
        try:
            header = read_header(damaged)
            [value.decode() for value in header.metadata.values()]
        except EngineCIError:
            refused += 1
    assert refused > 20


def test_a_key_that_stands_twice_is_refused(tmp_path):
    entry = struct.pack("<Q", 1) + b"a" + struct.pack("<IB", 0, 5)
    (tmp_path / "d.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entry + entry)
    assert "twice" in refusal(tmp_path / "d.gguf").message
