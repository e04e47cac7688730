"""What a golden answer must satisfy: each check a pure function of the answer.

A check is written in a case file as a mapping with `kind` (`check_kinds`); `judge` gives a verdict
with a one-line reason that names both sides. Every case is also held to `not-degenerate`; writing
that check out in a case replaces the built-in one, e.g. to allow an answer that is meant to repeat
itself. Texts are compared in Unicode normal form C: the same characters, however they are encoded.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.gates import (
    choice,
    degenerate,
    json_answer,
    language,
    number,
    pattern,
    tool_call,
)
from engine_pipeline.gates.check_kinds import (
    Check,
    Choice,
    Consulted,
    Contains,
    Exact,
    InLanguage,
    Json,
    Length,
    NotContains,
    NotDegenerate,
    NoToolCall,
    Number,
    Prefix,
    Refusal,
    Regex,
    ToolCalls,
)
from engine_pipeline.gates.grown import Grown
from engine_pipeline.gates.similarity import Similarity  # noqa: TC001 (of a field)
from engine_pipeline.gates.tool_call import ToolCall
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Answer", "Check", "CheckVerdict", "judge", "judge_all"]

OfText = (
    Exact
    | Prefix
    | Contains
    | NotContains
    | Regex
    | Number
    | Choice
    | Json
    | Refusal
    | Length
    | InLanguage
)
# Checks that need nothing but the answer.
Decided = OfText | ToolCalls | NoToolCall | NotDegenerate
_APOSTROPHES = str.maketrans(
    {"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{LEFT SINGLE QUOTATION MARK}": "'"}
)


class Answer(Value):
    """What a server said; `finish_reason` is the server's word, `length` for a cut answer."""

    text: str
    finish_reason: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class CheckVerdict(Grown):
    """One check's verdict on one answer; `reason` names both sides if it failed.

    Attributes:
        errored: nobody could say; it did not pass, and did not fail either.
        similarity: what was measured, of a check that measures it.
    """

    LATER = frozenset({"similarity"})

    kind: str
    passed: bool
    reason: str
    errored: bool = False
    similarity: Similarity | None = None


def judge_all(checks: Iterable[Check], answer: Answer) -> tuple[CheckVerdict, ...]:
    """Every check's verdict, `not-degenerate` first if no check of the case replaces it.

    Checks that somebody has to be asked for are left out: see `consult`.
    """
    given = tuple(check for check in checks if not isinstance(check, Consulted))
    if not any(isinstance(check, NotDegenerate) for check in given):
        given = (NotDegenerate(), *given)
    return tuple(judge(check, answer) for check in given)


def judge(check: Decided, answer: Answer) -> CheckVerdict:
    """One check's verdict on one answer."""
    reason = _defect(check, answer)
    return CheckVerdict(kind=check.kind, passed=reason is None, reason=reason or "as wanted")


def _defect(check: Decided, answer: Answer) -> str | None:
    text = unicodedata.normalize("NFC", answer.text)
    match check:
        case ToolCalls():
            reason = tool_call.defect(
                check.calls, answer.tool_calls, ordered=check.ordered, others=check.others
            )
            # What it said instead tells most.
            return f"{reason}: {_excerpt(text)}" if reason and not answer.tool_calls else reason
        case NoToolCall():
            calls = ", ".join(map(str, answer.tool_calls))
            return f"want no tool call, got {_excerpt(calls)}" if calls else None
        case NotDegenerate():
            if answer.tool_calls and not text.strip():
                return None  # a call needs no words
            cut = answer.finish_reason == "length"
            return degenerate.defect(text, cut=cut, loops=not check.allow_loops)
        case _:
            return _text_defect(check, text)


def _text_defect(check: OfText, text: str) -> str | None:
    match check:
        case Exact():
            reason = _not_exact(check, text)
        case Prefix():
            reason = _not_beginning(check, text)
        case Contains():
            reason = _not_containing(check, text)
        case NotContains():
            reason = _containing(check.none_of, text, check.casefold)
        case Regex():
            reason = _not_matching(check, text)
        case Number():
            reason = number.defect(
                text,
                check.value,
                tolerance=check.tolerance,
                relative=check.relative,
                pick=check.pick,
            )
        case Choice():
            reason = choice.defect(text, check.options, check.any_of)
        case Json():
            reason = json_answer.defect(text, check.json_schema, fenced=check.fenced)
        case Refusal():
            reason = _not_refusing(check, text)
        case Length():
            reason = _wrong_length(check, text)
        case InLanguage():
            reason = language.defect(text, check.language)
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


def _not_beginning(check: Prefix, text: str) -> str | None:
    held = _folded(text, check.casefold)
    held = held.lstrip() if check.strip else held
    if held.startswith(tuple(_folded(item, check.casefold) for item in check.any_of)):
        return None
    return f"want it to begin with {' or '.join(map(_excerpt, check.any_of))}, got {_excerpt(text)}"


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
