"""Log probabilities as servers send them, read into steps."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.parity_answer import read_steps


def entry(token, logprob, **more):
    return {"token": token, "logprob": logprob, **more}


def test_the_newer_shape_is_read_with_ids_and_bytes():
    choice = {
        "logprobs": {
            "content": [
                entry(
                    "The",
                    -0.1,
                    id=504,
                    bytes=[84, 104, 101],
                    top_logprobs=[entry("K", -2.5, id=59, bytes=[75]), entry("The", -0.1, id=504)],
                )
            ]
        }
    }
    [step] = read_steps(choice)
    assert (step.token, step.id) == ("The", 504)
    assert [(one.token, one.logprob) for one in step.top] == [("The", -0.1), ("K", -2.5)]


def test_the_older_shape_of_parallel_lists_is_read_too():
    choice = {
        "token_ids": [7, 9],
        "logprobs": {
            "tokens": ["a", "b"],
            "token_logprobs": [-0.5, -0.2],
            "top_logprobs": [{"a": -0.5, "x": -1.0}, None],
        },
    }
    first, second = read_steps(choice)
    assert (first.id, second.id) == (7, 9)
    assert first.logprob_of("x") == -1.0
    assert second.logprob_of("b") == -0.2


def test_a_token_without_text_is_known_by_its_number():
    [step] = read_steps({"logprobs": {"content": [entry("", -0.2, id=2, bytes=[])]}})
    assert step.token == "<2>"


def test_two_parts_of_a_character_stay_two_tokens():
    content = [
        entry("\ufffd", -0.1, id=3, bytes=[0xF0, 0x9F]),
        entry("\ufffd", -0.1, id=4, bytes=[0x98, 0x80]),
    ]
    first, second = read_steps({"logprobs": {"content": content}})
    assert first.token != second.token


def test_the_token_that_came_is_listed_even_if_the_server_leaves_it_out_of_the_top():
    [step] = read_steps(
        {"logprobs": {"content": [entry("a", -3.0, top_logprobs=[entry("b", -0.1)])]}}
    )
    assert [one.token for one in step.top] == ["b", "a"]


def test_the_logarithm_of_nothing_is_finite():
    [step] = read_steps({"logprobs": {"content": [entry("a", -3.4e38)]}})
    assert step.top[0].logprob == -100.0


@pytest.mark.parametrize("choice", [{}, {"logprobs": None}, {"logprobs": {"content": []}}])
def test_a_server_that_lists_nothing_gives_no_steps(choice):
    assert read_steps(choice) == ()


def test_what_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        read_steps({"logprobs": {"content": [entry("a", float("nan"))]}})
