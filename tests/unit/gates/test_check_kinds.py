"""Prefix, number, choice and tool calls; tools, formats and raw prompts of cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from engine_pipeline.gates.asking import CHAT, COMPLETION, request_of
from engine_pipeline.gates.check import Answer, judge, judge_all
from engine_pipeline.gates.check_kinds import Check
from engine_pipeline.gates.choice import chosen
from engine_pipeline.gates.number import numbers_in
from engine_pipeline.gates.suite import Case
from engine_pipeline.gates.tool_call import CallStream, ToolCall

CHECK = TypeAdapter(Check)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TIME = {"type": "function", "function": {"name": "time"}}


def reason(text: str, made: tuple[ToolCall, ...] = (), /, **check: Any) -> str | None:
    found = judge(CHECK.validate_python(check), Answer(text=text, tool_calls=made))
    return None if found.passed else found.reason


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=json.dumps(arguments))


@pytest.mark.parametrize(
    ("text", "changes", "want"),
    [
        ("Yes, it is.", {}, None),
        ("Well, yes", {}, "want it to begin with 'Yes', got 'Well, yes'"),
        (" Yes", {}, "want it to begin with 'Yes', got ' Yes'"),
        ("\n Yes", {"strip": True}, None),
        ("YES!", {"casefold": True}, None),
    ],
)
def test_a_prefix_is_what_the_answer_begins_with(text, changes, want):
    assert reason(text, kind="prefix", any_of=["Yes"], **changes) == want


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It is 42.", (42,)),
        ("1,234.5 and -7", (1234.5, -7)),
        ("−3 or +3, .5", (-3, 3, 0.5)),
        ("2.5e-3, 1E6", (0.0025, 1e6)),
        ("H2O, v1.2.3, x4y", ()),
        ("$15 (15%)", (15, 15)),
        ("from 3-5", (3,)),
        ("1,23", ()),
        ("no number", ()),
    ],
)
def test_numbers_are_read_as_english_writes_them(text, numbers):
    found = numbers_in(text)
    assert found[: len(numbers)] == numbers
    assert len(found) <= len(numbers) + (text == "from 3-5")


@pytest.mark.parametrize(
    ("text", "changes", "want"),
    [
        ("So it costs 15 dollars, 15 in all.", {}, None),
        ("15.4", {"tolerance": 0.5}, None),
        ("15.6", {"tolerance": 0.5}, "want 15 ± 0.5, got 15.6"),
        ("16", {"relative": 0.1}, None),
        ("17", {"relative": 0.1}, "want 15 ± 1.5, got 17"),
        ("3 + 12 = 15", {}, "want 15 as the only number, got 3, 12, 15"),
        ("3 + 12 = 15", {"pick": "last"}, None),
        ("3 + 12 = 15", {"pick": "first"}, "want 15, got first number 3"),
        ("3 + 12 = 15", {"pick": "any"}, None),
        ("three", {}, "want 15, got no number"),
        ("-15", {}, "want 15, got -15"),
    ],
)
def test_a_number_is_held_to_its_tolerance(text, changes, want):
    assert reason(text, kind="number", value=15, **changes) == want


def test_a_sum_of_fractions_is_the_number_that_it_is():
    assert reason("0.3", kind="number", value=0.1 + 0.2) is None


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("B", "B"),
        ("**B**.", "B"),
        ("(b)", None),
        ("B) Paris", "B"),
        ("B: since A is wrong", "B"),
        ("The answer is C.", "C"),
        ("At first A. But the answer: **D**", "D"),
        ("Between A and B", None),
        ("It must be C, of course", "C"),
        ("A cat sat on a mat", None),
        ("Cats", None),
        ("", None),
    ],
)
def test_a_choice_is_read_from_however_it_is_said(text, choice):
    assert chosen(text, ("A", "B", "C", "D")) == choice


def test_a_wrong_choice_and_no_choice_are_told_apart():
    check = {"kind": "choice", "options": ["red", "green"], "any_of": ["green"]}
    assert reason("The answer is red.", **check) == "want green, got red"
    assert "got no single choice: 'red or green'" in str(reason("red or green", **check))
    assert reason("green", **check) is None


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "choice", "options": ["a", "b"], "any_of": ["c"]},
        {"kind": "choice", "options": ["a", "b"], "any_of": ["a", "b"]},
        {"kind": "number", "value": float("nan")},
        {"kind": "tool-call", "calls": []},
        {"kind": "tool-call", "calls": [{"name": "f", "schema": {"type": "nonsense"}}]},
        {"kind": "prefix", "any_of": []},
        {"kind": "python", "entry_point": "no colon"},
        {"kind": "judge", "question": "Is it a good answer?", "votes": 2},
    ],
)
def test_a_check_that_cannot_be_right_is_refused(check):
    with pytest.raises(ValidationError):
        CHECK.validate_python(check)


PARIS, OSLO = call("weather", city="Paris", days=3), call("weather", city="Oslo")


@pytest.mark.parametrize(
    ("calls", "wanted", "changes", "want"),
    [
        ((PARIS,), [{"name": "weather"}], {}, None),
        ((PARIS,), [{"name": "weather", "arguments": {"days": 3.0, "city": "Paris"}}], {}, None),
        (
            (OSLO,),
            [{"name": "weather", "arguments": {"city": "Paris"}}],
            {},
            'weather: want arguments {"city": "Paris"}, got {"city": "Oslo"}',
        ),
        (
            (PARIS,),
            [{"name": "weather", "schema": {"required": ["country"]}}],
            {},
            "weather: arguments: JSON does not fit the schema at $: 'country' is a required "
            "property",
        ),
        ((PARIS, OSLO), [{"name": "weather"}], {"others": True}, None),
        ((PARIS, OSLO), [{"name": "weather"}], {}, "want 1 tool calls and no others, got 2: "),
        # Whatever call the loose want takes first, the strict one must get Paris.
        (
            (PARIS, OSLO),
            [{"name": "weather"}, {"name": "weather", "schema": {"required": ["days"]}}],
            {},
            None,
        ),
        ((PARIS,), [{"name": "weather"}, {"name": "weather"}], {}, "want weather, weather called"),
        ((OSLO, call("time")), [{"name": "time"}, {"name": "weather"}], {}, None),
        (
            (OSLO, call("time")),
            [{"name": "time"}, {"name": "weather"}],
            {"ordered": True},
            "want time, weather called in this order, got weather",
        ),
        ((call("time"),), [{"name": "weather"}], {}, "want a call of weather, got time({})"),
        (
            (ToolCall(name="weather", arguments="{city: Paris"),),
            [{"name": "weather"}],
            {},
            "weather: arguments: want JSON, got '{city: Paris'",
        ),
        ((ToolCall(name="time", arguments=""),), [{"name": "time", "arguments": {}}], {}, None),
        ((ToolCall(name="time", arguments="[]"),), [{"name": "time"}], {}, "time: arguments: "),
        ((), [{"name": "time"}], {}, "want a call of time, got no tool call: 'I would call time.'"),
    ],
)
def test_calls_of_tools_are_held_to_name_arguments_and_number(calls, wanted, changes, want):
    text = "" if calls else "I would call time."
    found = reason(text, calls, kind="tool-call", calls=wanted, **changes)
    assert (found or "").startswith(want or "")
    assert (found is None) == (want is None)


def test_an_answer_that_should_call_nothing_and_does_is_shown_its_call():
    assert reason("hello", kind="no-tool-call") is None
    assert reason("", (OSLO,), kind="no-tool-call") == (
        """want no tool call, got 'weather({"city": "Oslo"})'"""
    )


def test_a_call_needs_no_words_but_an_empty_answer_is_degenerate():
    check = CHECK.validate_python({"kind": "tool-call", "calls": [{"name": "weather"}]})
    assert all(v.passed for v in judge_all([check], Answer(text="", tool_calls=(OSLO,))))
    assert not judge_all([check], Answer(text=""))[0].passed


def test_calls_are_put_together_from_pieces_of_a_stream():
    stream = CallStream()
    for delta in (
        {"index": 0, "id": "a", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city":'}},
        {"index": 1, "function": {"name": "time", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": '"Oslo"}'}},
    ):
        stream.take([delta])
    assert stream.calls == (
        ToolCall(name="weather", arguments='{"city":"Oslo"}'),
        ToolCall(name="time", arguments="{}"),
    )


def test_calls_that_come_whole_need_no_index_and_may_hold_objects():
    stream = CallStream()
    stream.take(
        [
            {"function": {"name": "a", "arguments": {"x": 1}}},
            {"function": {"name": "a", "arguments": "{}"}},
        ]
    )
    assert [str(one) for one in stream.calls] == ['a({"x": 1})', "a({})"]


@pytest.mark.parametrize("deltas", [{"a": 1}, ["x"], [{"function": 3}]])
def test_calls_of_another_shape_are_not_of_this_api(deltas):
    with pytest.raises(TypeError):
        CallStream().take(deltas)


def test_a_flood_of_calls_is_cut_off():
    stream = CallStream()
    with pytest.raises(ValueError, match="more than 32"):
        stream.take([{"index": n, "function": {"name": "f"}} for n in range(40)])


def case(**changes: Any) -> Case:
    given = {
        "id": "a",
        "tags": ["t"],
        "messages": [{"role": "user", "content": "Hello?"}],
        "checks": [{"kind": "not-degenerate"}],
    }
    return Case.model_validate({**given, **changes})


def test_tools_and_formats_are_sent_and_absent_ones_are_not():
    bare = {"messages": [{"role": "user", "content": "Hello?"}]}
    assert request_of(case()) == (CHAT, bare)
    fmt = {"type": "json_object"}
    asked = case(tools=[WEATHER, TIME], tool_choice="required", response_format=fmt)
    assert request_of(asked) == (
        CHAT,
        bare | {"tools": [WEATHER, TIME], "tool_choice": "required", "response_format": fmt},
    )
    named = request_of(case(tools=[WEATHER], tool_choice="weather"))[1]["tool_choice"]
    assert named == {"type": "function", "function": {"name": "weather"}}


def test_a_raw_prompt_goes_where_no_template_touches_it():
    assert request_of(case(messages=[], prompt="Once")) == (COMPLETION, {"prompt": "Once"})


def test_a_chat_goes_on_after_a_tools_answer():
    made = {"id": "c1", "function": {"name": "time", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]
    sent = request_of(case(messages=messages, tools=[TIME]))[1]["messages"]
    assert sent[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{**made, "type": "function"}],
    }
    assert sent[2] == messages[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "both"}, "messages or prompt, one of the two"),
        ({"messages": []}, "messages or prompt, one of the two"),
        ({"messages": [], "prompt": "x", "tools": [TIME]}, "not a raw prompt"),
        ({"tools": [{"name": "f"}]}, "not a tool: want"),
        ({"tools": [TIME], "tool_choice": "weather"}, "tool_choice weather is not one of its"),
        (
            {"checks": [{"kind": "tool-call", "calls": [{"name": "f"}]}]},
            "wants a call of f, its tools are none",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]},
            "tool_call_id belongs to",
        ),
    ],
)
def test_a_case_that_cannot_be_asked_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        case(**changes)
