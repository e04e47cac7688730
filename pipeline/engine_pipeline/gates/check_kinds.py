"""What can be asked of a golden answer: a closed set of checks, as case files write them. Pure.

`check` judges all of them but three: what a judge model says (`llm_judge`), how near an embedding
model sees two texts (`embedder`), and what a function of an installed package says
(`python_check`) is asked outside.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from engine_pipeline.gates import json_answer, language, pattern
from engine_pipeline.gates.tool_call import MAX_CALLS, WantedCall
from engine_registry.digest import Digest
from engine_registry.documents import Value

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
# As packages declare it: `package.module:function`.
EntryPoint = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$", max_length=200),
]


class Exact(Value):
    """The answer is one of these texts, after the stated normalisation of both sides.

    Attributes:
        strip: ignore white space around the text.
        casefold: ignore upper and lower case.
    """

    kind: Literal["exact"]
    any_of: Phrases
    strip: bool = False
    casefold: bool = False


class Prefix(Value):
    """The answer begins with one of these texts.

    Attributes:
        strip: ignore white space before the answer.
        casefold: ignore upper and lower case.
    """

    kind: Literal["prefix"]
    any_of: Phrases
    strip: bool = False
    casefold: bool = False


class Contains(Value):
    """The answer holds every text of `all_of` and, if given, at least one of `any_of`."""

    kind: Literal["contains"]
    all_of: tuple[Phrase, ...] = ()
    any_of: tuple[Phrase, ...] = ()
    casefold: bool = False

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.all_of and not self.any_of:
            msg = "asks for nothing: give all_of or any_of"
            raise ValueError(msg)
        return self


class NotContains(Value):
    """The answer holds none of these texts."""

    kind: Literal["not-contains"]
    none_of: Phrases
    casefold: bool = False


class Regex(Value):
    """A Python regular expression is found in the answer; flags go inline, as `(?im)`."""

    kind: Literal["regex"]
    pattern: Annotated[str, Field(min_length=1, max_length=1000)]

    @field_validator("pattern")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        pattern.compiled(value)
        return value


class Json(Value):
    """The answer is JSON; no duplicate keys, no NaN.

    Attributes:
        json_schema: written `schema`: JSON Schema (draft 2020-12) that the value must satisfy.
        fenced: a Markdown code fence is allowed; the first one's content is judged.
    """

    kind: Literal["json"]
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    fenced: bool = False

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            json_answer.check_schema(value)
        return value


class Refusal(Value):
    """The answer declines: one of `phrases` is in it, none of `must_not_contain`; case ignored."""

    kind: Literal["refusal"]
    phrases: Phrases
    must_not_contain: tuple[Phrase, ...] = ()


class Length(Value):
    """The answer's size is within bounds; white space parts words, empty lines don't count."""

    kind: Literal["length"]
    min_chars: Count | None = None
    max_chars: Count | None = None
    min_words: Count | None = None
    max_words: Count | None = None
    min_lines: Count | None = None
    max_lines: Count | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        bounds = self.bounds()
        if all(low is None and high is None for _, low, high in bounds):
            msg = "asks for nothing: give at least one bound, e.g. max_words"
            raise ValueError(msg)
        for unit, low, high in bounds:
            if low is not None and high is not None and low > high:
                msg = f"min_{unit} {low} is above max_{unit} {high}"
                raise ValueError(msg)
        return self

    def bounds(self) -> tuple[tuple[str, int | None, int | None], ...]:
        """Unit, lower and upper bound."""
        return (
            ("chars", self.min_chars, self.max_chars),
            ("words", self.min_words, self.max_words),
            ("lines", self.min_lines, self.max_lines),
        )


class InLanguage(Value):
    """The answer looks like this language; see `language` for how rough that is."""

    kind: Literal["language"]
    language: language.Language


class NotDegenerate(Value):
    """The answer is text and does not go round in circles; see `degenerate` for the rules.

    Attributes:
        allow_loops: the answer is meant to repeat itself; only the other rules hold.
    """

    kind: Literal["not-degenerate"] = "not-degenerate"
    allow_loops: bool = False


class Number(Value):
    """The answer states a number; see `number` for what is read as one.

    Attributes:
        tolerance: how far it may be from `value`.
        relative: how far as a share of `value`; whichever of the two allows more counts.
        pick: which number of the answer counts; `only`: there is no other.
    """

    kind: Literal["number"]
    value: Annotated[float, Field(allow_inf_nan=False)]
    tolerance: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    relative: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    pick: Literal["only", "first", "last", "any"] = "only"


class Choice(Value):
    """The answer chooses one of some options; see `choice` for how that is read.

    Attributes:
        any_of: the right ones.
    """

    kind: Literal["choice"]
    options: Annotated[tuple[Phrase, ...], Field(min_length=2, max_length=26)]
    any_of: Phrases

    @model_validator(mode="after")
    def _can_be_right_and_wrong(self) -> Self:
        if unknown := sorted(set(self.any_of) - set(self.options)):
            msg = f"any_of {', '.join(unknown)} is not one of options {', '.join(self.options)}"
            raise ValueError(msg)
        if set(self.any_of) == set(self.options):
            msg = "every option is right, so it can never fail"
            raise ValueError(msg)
        return self


class ToolCalls(Value):
    """The answer calls these tools, each with a call of its own.

    Attributes:
        ordered: in this order.
        others: further calls are allowed.
    """

    kind: Literal["tool-call"]
    calls: Annotated[tuple[WantedCall, ...], Field(min_length=1, max_length=MAX_CALLS)]
    ordered: bool = False
    others: bool = False

    @field_validator("calls")
    @classmethod
    def _have_schemas(cls, value: tuple[WantedCall, ...]) -> tuple[WantedCall, ...]:
        for call in value:
            if call.json_schema is not None:
                json_answer.check_schema(call.json_schema)
        return value


class NoToolCall(Value):
    """The answer calls no tool."""

    kind: Literal["no-tool-call"]


class Judged(Value):
    """The gate's judge model says yes to a question about the answer.

    Attributes:
        question: what the judge decides, e.g. `Does the answer name a fee of 15 dollars?`
        votes: how often it is asked; most votes decide.
    """

    kind: Literal["judge"]
    question: Annotated[str, StringConstraints(min_length=10, max_length=4000)]
    votes: Literal[1, 3, 5, 7, 9] = 1


def _several(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class Similar(Value):
    """The answer says about what a text says, as the gate's embedding model sees it.

    Attributes:
        to: that text, or several, of which the nearest counts; none: the case's recorded answer.
        at_least: cosine of the embeddings, rounded to four decimals; what is near depends on the
            model, so take it from reports.
    """

    kind: Literal["similar"]
    to: Annotated[
        tuple[Phrase, ...],
        BeforeValidator(_several, json_schema_input_type=str | list[str]),
        Field(max_length=20),
    ] = ()
    at_least: Annotated[float, Field(gt=0.0, le=1.0)]


class Python(Value):
    """A function of an installed package finds nothing wrong; see `python_check` for which.

    Attributes:
        options: its keyword arguments.
        code: what the file of the function must be, byte for byte; None accepts any.
    """

    kind: Literal["python"]
    entry_point: EntryPoint
    options: dict[str, Any] = {}
    code: Digest | None = None


Consulted = Judged | Similar | Python
Check = Annotated[
    Exact
    | Prefix
    | Contains
    | NotContains
    | Regex
    | Number
    | Choice
    | Json
    | ToolCalls
    | NoToolCall
    | Refusal
    | Length
    | InLanguage
    | NotDegenerate
    | Judged
    | Similar
    | Python,
    Field(discriminator="kind"),
]
