"""What a golden answer must satisfy: a closed set of checks, each a pure function of the answer.

A check is written in a case file as a mapping with `kind`; `judge` gives a verdict with a one-line
reason that names both sides. Every case is also held to `not-degenerate`; writing that check out
in a case replaces the built-in one, e.g. to allow an answer that is meant to repeat itself.
Texts are compared in Unicode normal form C: the same characters, however they are encoded.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, assert_never

from pydantic import Field, StringConstraints, field_validator, model_validator

from engine_pipeline.gates import degenerate, json_answer, language, pattern
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
_APOSTROPHES = str.maketrans(
    {"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{LEFT SINGLE QUOTATION MARK}": "'"}
)


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


Check = Annotated[
    Exact | Contains | NotContains | Regex | Json | Refusal | Length | InLanguage | NotDegenerate,
    Field(discriminator="kind"),
]


class Answer(Value):
    """What a server said; `finish_reason` is the server's word, `length` for a cut answer."""

    text: str
    finish_reason: str | None = None


class CheckVerdict(Value):
    """One check's verdict on one answer; `reason` names both sides if it failed."""

    kind: str
    passed: bool
    reason: str


def judge_all(checks: Iterable[Check], answer: Answer) -> tuple[CheckVerdict, ...]:
    """Every check's verdict, `not-degenerate` first if no check of the case replaces it."""
    given = tuple(checks)
    if not any(isinstance(check, NotDegenerate) for check in given):
        given = (NotDegenerate(), *given)
    return tuple(judge(check, answer) for check in given)


def judge(check: Check, answer: Answer) -> CheckVerdict:
    """One check's verdict on one answer."""
    reason = _defect(check, answer)
    return CheckVerdict(kind=check.kind, passed=reason is None, reason=reason or "as wanted")


def _defect(check: Check, answer: Answer) -> str | None:
    text = unicodedata.normalize("NFC", answer.text)
    match check:
        case Exact():
            reason = _not_exact(check, text)
        case Contains():
            reason = _not_containing(check, text)
        case NotContains():
            reason = _containing(check.none_of, text, check.casefold)
        case Regex():
            reason = _not_matching(check, text)
        case Json():
            reason = json_answer.defect(text, check.json_schema, fenced=check.fenced)
        case Refusal():
            reason = _not_refusing(check, text)
        case Length():
            reason = _wrong_length(check, text)
        case InLanguage():
            reason = language.defect(text, check.language)
        case NotDegenerate():
            cut = answer.finish_reason == "length"
            reason = degenerate.defect(text, cut=cut, loops=not check.allow_loops)
        case _:
            assert_never(check)
    return reason


def _folded(text: str, casefold: bool) -> str:
    composed = unicodedata.normalize("NFC", text)
    return composed.casefold() if casefold else composed


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")


def _not_exact(check: Exact, text: str) -> str | None:
    def normal(side: str) -> str:
        folded = _folded(side, check.casefold)
        return folded.strip() if check.strip else folded

    if normal(text) in {normal(item) for item in check.any_of}:
        return None
    wanted = " or ".join(_excerpt(item) for item in check.any_of)
    return f"want exactly {wanted}, got {_excerpt(text)}"


def _not_containing(check: Contains, text: str) -> str | None:
    held = _folded(text, check.casefold)
    missing = [item for item in check.all_of if _folded(item, check.casefold) not in held]
    if missing:
        return f"want {', '.join(map(_excerpt, missing))} in it, got {_excerpt(text)}"
    if check.any_of and not any(_folded(item, check.casefold) in held for item in check.any_of):
        return f"want one of {', '.join(map(_excerpt, check.any_of))} in it, got {_excerpt(text)}"
    return None


def _containing(none_of: tuple[str, ...], text: str, casefold: bool) -> str | None:
    held = _folded(text, casefold)
    found = [item for item in none_of if _folded(item, casefold) in held]
    return (
        f"want no {', '.join(map(_excerpt, found))} in it, got {_excerpt(text)}" if found else None
    )


def _not_matching(check: Regex, text: str) -> str | None:
    if pattern.compiled(check.pattern).search(text[: pattern.SEARCH_LIMIT_CHARS]):
        return None
    return f"want a match of {check.pattern!r}, got {_excerpt(text)}"


def _not_refusing(check: Refusal, text: str) -> str | None:
    plain = text.translate(_APOSTROPHES)
    held = plain.casefold()
    if not any(_folded(item, True).translate(_APOSTROPHES) in held for item in check.phrases):
        return f"want a refusal ({', '.join(map(_excerpt, check.phrases))}), got {_excerpt(text)}"
    harm = _containing(check.must_not_contain, plain, casefold=True)
    return f"refuses and yet: {harm}" if harm else None


def _wrong_length(check: Length, text: str) -> str | None:
    sizes = {
        "chars": len(text),
        "words": len(text.split()),
        "lines": sum(bool(line.strip()) for line in text.splitlines()),
    }
    for unit, low, high in check.bounds():
        if low is not None and sizes[unit] < low:
            return f"want at least {low} {unit}, got {sizes[unit]}: {_excerpt(text)}"
        if high is not None and sizes[unit] > high:
            return f"want at most {high} {unit}, got {sizes[unit]}: {_excerpt(text)}"
    return None
