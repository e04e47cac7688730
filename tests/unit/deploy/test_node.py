"""The file that describes a node: what is wrong with it is said with its path and its field."""

from __future__ import annotations

import json

import pytest

from engine_pipeline.deploy.node import read_node
from engine_registry.errors import InvalidInput, NotFound

NODE = {
    "schema_version": 1,
    "name": "gpu-07",
    "architecture": "x86_64",
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "sm": 90}],
}


def test_what_is_left_out_is_not_known(tmp_path):
    path = tmp_path / "node.json"
    path.write_text(json.dumps(NODE))
    node = read_node(path)
    assert (node.name, node.gpus[0].sm) == ("gpu-07", 90)
    assert (node.driver, node.tensorrt, node.gpus[0].memory_mib) == (None, None, None)


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="gone.json") as caught:
        read_node(tmp_path / "gone.json")
    assert caught.value.name == "node-missing"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("no JSON", "document"),
        ("[]", "document"),
        (json.dumps(NODE | {"drivers": "590"}), "drivers"),
        (json.dumps(NODE | {"gpus": [{"sm": 90}]}), "gpus.0.name"),
        (json.dumps(NODE | {"gpus": [{"name": "L4", "memory_mib": -1}]}), "gpus.0.memory_mib"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, text, where):
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=f"{path}: {where}: ") as caught:
        read_node(path)
    assert caught.value.name == "node-invalid"


def test_a_directory_is_no_description(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_node(tmp_path)
