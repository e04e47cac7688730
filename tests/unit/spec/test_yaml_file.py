from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from engine_pipeline.yaml_file import InvalidDocument, load_yaml, parse_yaml, validated
from engine_registry.documents import Value
from engine_registry.errors import ExitCode, InvalidInput, NotFound


def parsed(text: str) -> object:
    return parse_yaml(text.encode(), "f.yaml")[0]


def refusal(text: str | bytes) -> InvalidDocument:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(InvalidDocument) as caught:
        parse_yaml(data, "f.yaml", reference="some-invalid")
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("=", "="),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        (">\n  one\n  line\n", "one line\n"),
    ],
)
def test_scalars_have_the_types_of_yaml_1_2(text: str, value: object) -> None:
    assert parsed(f"a: {text}") == {"a": value}
    assert type(parsed(f"a: {text}")["a"]) is type(value)  # type: ignore[index]


def test_every_key_and_item_has_its_line() -> None:
    text = "a: 1\nb:\n  - x\n  - y: 2\n\n    z: 3\nc: {d: 4,\n  e: 5}\n"
    value, lines = parse_yaml(text.encode(), "f")
    assert value == {"a": 1, "b": ["x", {"y": 2, "z": 3}], "c": {"d": 4, "e": 5}}
    assert lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "y"): 4,
        ("b", 1, "z"): 6,
        ("c",): 7,
        ("c", "d"): 7,
        ("c", "e"): 8,
    }


@pytest.mark.parametrize(
    ("text", "line", "path", "says"),
    [
        ("", 1, "", "empty"),
        ("# only a comment\n", 1, "", "empty"),
        ("a: 1\nb: 2\na: 3\n", 3, "a", "first on line 1"),
        ("x:\n  a: 1\n  a: 1\n", 3, "x.a", "first on line 2"),
        ("a: &anchor 1\n", 1, "a", "anchor &anchor"),
        ("a: 1\nb: *a\n", 2, "b", "alias *a"),
        ("<<: {a: 1}\n", 1, "", "merge key"),
        ("a: !!python/object:os.system x\n", 1, "a", "tag"),
        ("a: !!str 1\n", 1, "a", "tag"),
        ("a: ! 1\n", 1, "a", "tag"),
        ("%YAML 1.1\n---\na: no\n", 2, "", "directive"),
        ("a: 1\n---\nb: 2\n", 2, "", "second document"),
        ("1: a\n", 1, "", "key 1 is not text"),
        ("true: a\n", 1, "", "key true is not text"),
        (": a\n", 1, "", "key null is not text"),
        ("? [a]\n: b\n", 1, "", "a mapping or a list"),
        ("a:\n  b: .inf\n", 2, "a.b", "finite"),
        ("a: .nan\n", 1, "a", "finite"),
        ("a: 1e999\n", 1, "a", "too large"),
        ("a:\n  b: [1, 2\n", 3, "", "not YAML"),
        ("a: 'x\n", 2, "", "not YAML"),
        ("a: b: c\n", 1, "", "not YAML"),
        ("\ta: 1\n", 1, "", "not YAML"),
        ("a: \x00\n", 1, "", "not YAML"),
        ("[" * 40, 1, "", "nested deeper"),
        ("- " * 60 + "x", 1, "", "nested deeper"),
    ],
)
def test_what_is_not_in_the_dialect_is_refused_with_its_line(
    text: str, line: int, path: str, says: str
) -> None:
    error = refusal(text)
    (problem,) = error.problems
    assert (problem.line, problem.path) == (line, path) or path == ""
    assert problem.line == line
    assert says in problem.text
    assert error.message.startswith(f"f.yaml:{line}: ")
    assert (error.name, error.exit_code) == ("some-invalid", ExitCode.INVALID)


def test_a_quoted_key_may_look_like_anything() -> None:
    assert parsed('"1": a\n"<<": b\n"true": c\n') == {"1": "a", "<<": "b", "true": "c"}


def test_text_that_is_not_utf_8_is_refused_on_its_line() -> None:
    assert refusal(b"a: 1\nb: \xff\n").problems[0].line == 2


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1\n", "f")[0] == {"a": 1}


def test_a_bomb_of_aliases_never_unfolds() -> None:
    text = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert "anchor" in refusal(text).message


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with path.open("wb") as out:
        out.truncate(1 << 30)
    with pytest.raises(InvalidDocument, match="at most"):
        load_yaml(path)


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_pipeline.yaml_reader.MAX_NODES", 100)
    assert parsed("[" + "1," * 99 + "]") == [1] * 99
    assert "more than 100 values" in refusal("[" + "1," * 100 + "]").message


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_yaml(tmp_path / "nothing.yaml")


def test_a_directory_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a directory, want a YAML file"):
        load_yaml(tmp_path)


# Any model


class Circle(Value):
    """A circle.

    Attributes:
        radius: in metres,
            measured once.
    """

    kind: Literal["circle"]
    radius: Annotated[float, Field(gt=0)]


class Box(Value):
    kind: Literal["box"]
    sides: Annotated[tuple[int, ...], Field(min_length=2)]
    label: str | None = None


class Drawing(Value):
    """A drawing."""

    title: Annotated[str, Field(max_length=10, description="at most ten letters")]
    shapes: tuple[Annotated[Circle | Box, Field(discriminator="kind")], ...] = ()
    sizes: dict[str, Annotated[int, Field(le=9)] | bool] = {}
    scale: float = 1.0
    json_schema: Annotated[dict[str, int] | None, Field(alias="schema")] = None

    @model_validator(mode="after")
    def _is_titled(self) -> Drawing:
        if self.title == "bad":
            msg = "title 'bad' is taken"
            raise ValueError(msg)
        return self


def problems(tmp_path: Path, text: str) -> list[tuple[int, str, str]]:
    path = tmp_path / "d.yaml"
    path.write_text(text)
    with pytest.raises(InvalidDocument) as caught:
        validated(path, Drawing)
    return [(p.line, p.path, p.text) for p in caught.value.problems]


def test_a_valid_file_becomes_the_model(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text("title: x\nshapes:\n- {kind: circle, radius: 2}\nschema: {a: 1}\n")
    drawing = validated(path, Drawing)
    assert drawing.shapes == (Circle(kind="circle", radius=2.0),)
    assert drawing.json_schema == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "path", "says"),
    [
        ("shapes: []", 1, "title", "missing; want: at most ten letters"),
        ("title: 7", 1, "title", "found 7, want text"),
        ("title: abcdefghijkl", 1, "title", "at most 10 characters"),
        ("title: x\nscale: '2'", 2, "scale", 'found "2", want a number'),
        ("title: x\nscale: true", 2, "scale", "found true, want a number"),
        ("title: x\ntitel: y", 2, "titel", "unknown key; did you mean title?"),
        ("title: x\nschma: {}", 2, "schma", "did you mean schema?"),
        ("title: bad", 1, "", "title 'bad' is taken"),
        ("title: x\nshapes: circle", 2, "shapes", 'found "circle", want a list'),
        (
            "title: x\nshapes:\n- radius: 1\n  kind: circel",
            4,
            "shapes.0.kind",
            'found "circel", allowed: circle, box; did you mean circle?',
        ),
        ("title: x\nshapes:\n- radius: 1", 3, "shapes.0", "missing key kind"),
        (
            "title: x\nshapes:\n- kind: circle",
            3,
            "shapes.0.radius",
            "missing; want: in metres, measured once",
        ),
        (
            "title: x\nshapes:\n- kind: circle\n  radius: 0",
            4,
            "shapes.0.radius",
            "found 0, want more than 0",
        ),
        (
            "title: x\nshapes:\n- kind: circle\n  radius: 1\n  radious: 2",
            5,
            "shapes.0.radious",
            "unknown key; did you mean radius? (known keys: kind, radius)",
        ),
        ("title: x\nshapes:\n- kind: box\n  sides: [1]", 4, "shapes.0.sides", "a list of at least"),
        (
            "title: x\nshapes:\n- kind: box\n  sides:\n  - 1\n  - a",
            6,
            "shapes.0.sides.1",
            "integer",
        ),
        ("title: x\nsizes: {a: x}", 2, "sizes.a", 'found "x", want an integer or true or false'),
        ("[]", 1, "", "found an empty list, want a mapping"),
        ("7", 1, "", "found 7, want a mapping"),
    ],
)
def test_a_problem_names_line_path_what_was_found_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, path: str, says: str
) -> None:
    found = problems(tmp_path, text)
    assert [(number, where) for number, where, _ in found] == [(line, path)]
    assert says in found[0][2]


def test_all_problems_are_there_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "scale: x\ntitle: 7\nwhat: 1\nsizes: {a: 10}\n"
    assert [(line, path) for line, path, _ in problems(tmp_path, text)] == [
        (1, "scale"),
        (2, "title"),
        (3, "what"),
        (4, "sizes.a"),
    ]


def test_the_message_has_the_first_problem_and_counts_the_others(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text("title: 1\nscale: x\nwhat: 1\n")
    with pytest.raises(InvalidDocument) as caught:
        validated(path, Drawing, reference="drawing-invalid")
    assert caught.value.message == f"{path}:1: title: found 1, want text (and 2 more problems)"
    assert "quotes" in caught.value.hint
    assert caught.value.name == "drawing-invalid"


def test_what_was_found_is_shown_in_one_short_line(tmp_path: Path) -> None:
    text = "title: x\nscale: |\n" + "  line\n" * 100
    ((_, _, says),) = problems(tmp_path, text)
    assert "\n" not in says
    assert len(says) < 120


YAML_BITS = st.sampled_from(
    [
        *("a", ":", " ", "\n", "-", "[", "]", "{", "}", ",", "&a", "*a", "!", "|", ">", "'", '"'),
        *("#", "?", "%", "@", "`", "<<", "---", "...", "\t", "0x", "1e9", ".inf", "~", "é"),
        *("\x85", "\\"),
    ]
)


def read_or_refusal(data: bytes) -> str:
    """What came of reading: the refusal's message, or a dash."""
    try:
        value, lines = parse_yaml(data, "f.yaml")
    except InvalidInput as error:
        return error.message
    assert () in lines
    assert value is None or isinstance(value, dict | list | str | int | float)
    return "f.yaml:-"


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(YAML_BITS, max_size=40).map("".join)))
@example("? ? ?\n")
@example("a: !<tag:yaml.org,2002:int> 1")
@example("!!set {? a}")
@example("%TAG ! tag:x,2000:\n---\na")
@example("- - -\n -")
@example("'\\\ud800'".encode("utf-8", "replace").decode())
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert read_or_refusal(data).startswith("f.yaml:")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    assert read_or_refusal(data).startswith("f.yaml:")
