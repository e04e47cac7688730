"""Filling templates: what is filled, what may stay open, what is refused."""

from __future__ import annotations

import pytest

from engine_pipeline.targets.triton.template import fill, placeholders, refuse_without
from engine_registry.errors import InvalidInput
from tests.servers.pbtxt import ParseError, parse

NAME = "tensorrt_llm/config.pbtxt"


def test_placeholders_within_and_outside_quotes_are_filled():
    text = 'max_batch_size: ${size}\nvalue: "${dir}/x"'
    assert fill(text, {"size": "8", "dir": "/e"}, NAME) == 'max_batch_size: 8\nvalue: "/e/x"'


def test_an_open_one_within_quotes_stays_as_the_backend_expects():
    assert fill('value: "${medusa_choices}"', {}, NAME) == 'value: "${medusa_choices}"'


def test_an_open_one_outside_quotes_is_refused_by_name():
    with pytest.raises(InvalidInput, match="prompt_embedding_table_data_type") as caught:
        fill("data_type: ${prompt_embedding_table_data_type}", {}, NAME)
    assert caught.value.name == "template-not-filled"
    assert NAME in caught.value.message


def test_the_open_one_that_is_refused_would_not_have_parsed():
    with pytest.raises(ParseError):
        parse("data_type: ${prompt_embedding_table_data_type}")


@pytest.mark.parametrize(
    "text",
    ['# a "quote and ${x}\na: "b"', "# it's ${x}", 'a: "an escaped \\" quote" # ${x}'],
)
def test_comments_are_no_place_for_values_and_their_quotes_count_for_nothing(text):
    assert fill(text, {}, NAME) == text


def test_a_hash_within_quotes_begins_no_comment():
    assert fill('a: "#${x}"', {"x": "1"}, NAME) == 'a: "#1"'


@pytest.mark.parametrize("value", ["", "8 }", "8\nname: 1", "TYPE;", '"'])
def test_a_value_that_would_change_the_structure_is_refused(value):
    with pytest.raises(InvalidInput, match="one word") as caught:
        fill("a: ${x}", {"x": value}, NAME)
    assert caught.value.name == "template-value-invalid"


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "${y}", "a'b"])
def test_a_value_that_would_end_its_quotes_is_refused(value):
    with pytest.raises(InvalidInput, match="without quotes"):
        fill('a: "${x}"', {"x": value}, NAME)


def test_a_template_that_is_filled_already_is_recognised():
    with pytest.raises(InvalidInput, match=r"\$\{engine_dir\}") as caught:
        refuse_without('value: "/engines"', ["engine_dir"], NAME)
    assert "untouched" in caught.value.hint


def test_names_are_found_wherever_they_stand():
    assert placeholders('${a} "${b}" # ${c}') == {"a", "b", "c"}
