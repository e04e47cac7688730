"""Chats from logs to suites and back: nothing made up, nothing twice, nothing hostile swallowed."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_pipeline.gates.suite import CaseFile
from engine_pipeline.gates.suite_import import (
    MAX_LINE_BYTES,
    Import,
    case_files,
    read_log,
    write_files,
)
from engine_pipeline.gates.suite_jsonl import BadLine, read_line, write_line
from engine_pipeline.redact import looks_secret
from engine_pipeline.yaml_file import validated
from engine_registry.errors import Conflict, InvalidInput, NotFound

ASK = [{"role": "user", "content": "Capital of Japan?"}]
TOOL = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}


def case_of(value: Any, **changes: Any) -> Any:
    line = value if isinstance(value, str) else json.dumps(value)
    return read_line(line, **{"tag": "captured", "ideal_as": None, **changes}).case


def read(path: Path, *lines: Any, **changes: Any) -> Import:
    log = path / "log.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    log.write_text("\n".join(texts) + "\n")
    options = {
        "tag": "captured",
        "ideal_as": None,
        "limit": 100,
        "skips_invalid": False,
        "keeps_secrets": False,
    }
    return read_log(log, **{**options, **changes})


@pytest.mark.parametrize(
    "line",
    [
        {"messages": ASK},
        {"messages": ASK, "temperature": 0.3, "model": "x", "stream": True, "tools": []},
        {"custom_id": "1", "method": "POST", "url": "/v1", "body": {"messages": ASK}},
        {"request": {"messages": ASK}, "response": {"choices": [{"message": {"content": "x"}}]}},
        {"request": {"method": "POST", "body": {"messages": ASK}}},
        {"messages": [*ASK, {"role": "assistant", "content": "Tokyo"}]},
        {"messages": ASK, "ideal": ["Tokyo", "Edo"]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ASK[0]["content"]}]}]},
        {"messages": [{**ASK[0], "name": "ada", "tool_calls": None}]},
    ],
)
def test_one_question_is_one_case_however_it_was_logged(line):
    case = case_of(line)
    assert case == case_of({"messages": ASK})
    assert [check.kind for check in case.checks] == ["not-degenerate"]
    assert case.tags == ("captured",)


def test_what_is_asked_is_in_the_id_and_nothing_else_is():
    first = case_of({"messages": ASK}).id
    assert first.startswith("c-")
    others = [
        {"messages": ASK, "tools": [TOOL]},
        {"messages": ASK, "response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "Be short."}, *ASK]},
        {"prompt": "Capital of Japan?"},
    ]
    ids = {case_of(other).id for other in others}
    assert len(ids | {first}) == 5
    assert case_of({"messages": ASK}, tag="other").id == first


def test_an_answer_becomes_a_check_only_where_that_is_said():
    line = {"messages": ASK, "ideal": ["Tokyo", "Edo"]}
    [check] = case_of(line, ideal_as="contains").checks
    assert (check.kind, check.any_of) == ("contains", ("Tokyo", "Edo"))
    [check] = case_of({"messages": ASK, "reference": "Tokyo"}, ideal_as="exact").checks
    assert (check.kind, check.any_of, check.strip) == ("exact", ("Tokyo",), True)
    [check] = case_of({"messages": ASK}, ideal_as="exact").checks
    assert check.kind == "not-degenerate"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "list where an object is wanted"),
        ('{"messages": [], "messages": []}', "key 'messages' is given twice"),
        ('{"messages": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"messages": ' + "9" * 5000 + "}", "not JSON"),
        ({"text": "hello"}, "no messages and no prompt; it has text"),
        ({"messages": "hi"}, "messages is str, want a list"),
        ({"messages": ["hi"]}, "a message is str, want an object"),
        ({"messages": [{"role": "developer", "content": "x"}, *ASK]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "give messages or prompt"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "several parts, or not of text",
        ),
        ({"messages": ASK, "tools": [{"name": "f"}]}, "not a tool"),
        ({"messages": ASK, "prompt": "both"}, "messages or prompt, one of the two"),
        ({"messages": [{"role": "user", "content": "x" * 100_001}]}, "at most 100000"),
    ],
)
def test_what_no_suite_can_hold_is_refused_with_why(line, message):
    with pytest.raises(BadLine, match=message):
        case_of(line)


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_whatever_json_comes_is_a_case_or_a_bad_line(value):
    for line in ({"messages": value}, {"prompt": value}, {"body": value}, {"messages": [value]}):
        with suppress(BadLine):
            case_of(json.dumps(line))


def test_a_chat_with_tools_goes_out_and_comes_back_the_same():
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    line = {
        "messages": [
            {"role": "user", "content": "Time?\u2028\u0085"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "12:00", "tool_call_id": "c1"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
    }
    case = case_of(line)
    again = case_of(write_line(case))
    assert again == case
    assert json.loads(write_line(case))["metadata"] == {"id": case.id, "tags": ["captured"]}


def test_each_question_is_taken_once_and_of_too_many_the_same_sample(tmp_path):
    lines = [{"messages": [{"role": "user", "content": f"{n % 40}?"}]} for n in range(120)]
    whole = read(tmp_path, *lines)
    assert (whole.lines, len(whole.cases), whole.duplicates) == (120, 40, 80)
    some = read(tmp_path, *lines, limit=10)
    other = read(tmp_path, *reversed(lines), limit=10)
    assert list(some.cases) == list(other.cases) == sorted(whole.cases)[:10]
    assert some.left_out == 30


def test_a_bad_line_is_named_by_its_number_and_may_be_left_out(tmp_path):
    lines = [{"messages": ASK}, "", "{}", {"prompt": "x"}]
    with pytest.raises(InvalidInput, match=r"log\.jsonl:3: no messages"):
        read(tmp_path, *lines)
    found = read(tmp_path, *lines, skips_invalid=True)
    assert list(found.skipped) == [3]
    assert len(found.cases) == 2


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("my key is sk-0123456789abcdefghij", True),
        ("Authorization: Bearer abcdefgh12345678", True),
        ("postgres://me:hunter2@db/x", True),
        ("https://x.test/a?X-Amz-Signature=0123", True),
        ("-----BEGIN RSA PRIVATE KEY-----", True),
        ("https://x.test/a?page=2", False),
        ("a token of my esteem", False),
    ],
)
def test_what_looks_like_a_secret_is_left_out_unless_it_is_wanted(tmp_path, text, secret):
    line = {"messages": [{"role": "user", "content": text}], "headers": {"x": "Bearer 12345678901"}}
    assert looks_secret(text) is secret
    found = read(tmp_path, {"messages": ASK}, line)
    assert found.secret_lines == ([2] if secret else [])
    assert len(found.cases) == (1 if secret else 2)
    assert len(read(tmp_path, {"messages": ASK}, line, keeps_secrets=True).cases) == 2


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bomb", b"0" * 10_000)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_zip, "begins like a zip archive"),
        (lambda path: path.write_bytes(gzip.compress(b"{}")), "begins like gzip"),
        (lambda path: path.write_bytes(b'{"a":1}\n\x00'), "line 2 holds a NUL"),
        (lambda path: path.write_bytes(b"\n\xff\xfe"), "line 2 is not UTF-8"),
        (
            lambda path: path.write_bytes(b"x" * (MAX_LINE_BYTES + 1)),
            f"line 1 has more than {MAX_LINE_BYTES} bytes",
        ),
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "not a regular file"),
    ],
)
def test_what_is_no_log_is_refused_early(tmp_path, write, message):
    path = tmp_path / "log.jsonl"
    write(path)
    with pytest.raises(InvalidInput, match=message):
        read_log(path, tag="t", ideal_as=None, limit=1, skips_invalid=True, keeps_secrets=False)


def test_a_log_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        read_log(
            tmp_path / "no", tag="t", ideal_as=None, limit=1, skips_invalid=True, keeps_secrets=True
        )


def test_files_are_split_before_the_reader_would_refuse_them_and_read_back_the_same(tmp_path):
    cases = [
        case_of({"messages": [{"role": "user", "content": f"{n} {'x' * 90_000}\u0085\t"}]})
        for n in range(7)
    ]
    files = case_files(cases, "captured")
    assert list(files) == ["captured.yaml", "captured-2.yaml"]
    written = write_files(tmp_path / "suite", files)
    back = [case for path in written for case in validated(path, CaseFile).cases]
    assert back == sorted(cases, key=lambda case: case.id)


def test_no_file_is_written_over_another_and_none_alone(tmp_path):
    (tmp_path / "b.yaml").write_text("mine")
    with pytest.raises(Conflict, match=r"b\.yaml is there already"):
        write_files(tmp_path, {"a.yaml": "1", "b.yaml": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["b.yaml"]
    assert (tmp_path / "b.yaml").read_text() == "mine"
