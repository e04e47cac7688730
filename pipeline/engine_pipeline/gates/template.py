"""Whether chat template and tokenizer make of a suite's chats what was recorded. Pure.

A chat template that was lost or swapped still gives fluent answers, only worse ones. So a suite may
carry `template.yaml` (`suite.TemplateGoldens`), and an engine is held to it before its answers are
looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_pipeline.gates.outcome import Outcome, combine
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.suite import GoldenChat, TemplateGoldens

Reason = Annotated[str, Field(min_length=1, max_length=2000)]
_AROUND_CHARS = 24
_AROUND_TOKENS = 3


class SeenChat(Value):
    """What a server made of a golden chat; None where it does not tell.

    Attributes:
        size: tokens of the prompt, by the usage of an answer.
        error: why the server did not answer at all.
    """

    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    size: int | None = None
    error: Reason | None = None


class ChatVerdict(Value):
    """One chat; skipped if the server tells nothing about it."""

    id: Slug
    outcome: Outcome
    reason: Reason


class TemplateResult(Value):
    """What came of the template guard, as a report stores it.

    Attributes:
        special_tokens: those that are wrong or missing, with why.
    """

    outcome: Outcome
    reason: Reason
    chats: tuple[ChatVerdict, ...]
    special_tokens: dict[str, Reason] = {}


def judge_template(
    goldens: TemplateGoldens,
    seen: dict[str, SeenChat],
    specials: dict[str, tuple[int, ...] | None],
) -> TemplateResult:
    """The verdict on chat template and tokenizer.

    Args:
        goldens: what is wanted.
        seen: by the chat's id.
        specials: what each special token's text becomes; None if the server does not tell.
    """
    verdicts = tuple(_verdict(chat, seen[chat.id]) for chat in goldens.chats)
    wrong = {
        text: f"is {_numbers(ids)}, want the one token {number}"
        for text, number in goldens.special_tokens.items()
        if (ids := specials.get(text)) is not None and ids != (number,)
    }
    outcome = combine([one.outcome for one in verdicts] + [Outcome.FAILED] * bool(wrong))
    bad = [f"{one.id}: {one.reason}" for one in verdicts if one.outcome is outcome]
    bad += [f"special token {text!r} {why}" for text, why in wrong.items()]
    if outcome is Outcome.PASSED:
        told = sum(ids is not None for ids in specials.values())
        said = f"{len(verdicts)} chats become the prompts that were recorded"
        if any("only the number" in one.reason for one in verdicts):
            said += ", as far as the numbers of their tokens tell"
        if told:
            said += f", {told} special tokens are whole"
        bad = [said]
    return TemplateResult(
        outcome=outcome, reason="; ".join(bad)[:2000], chats=verdicts, special_tokens=wrong
    )


def _verdict(chat: GoldenChat, seen: SeenChat) -> ChatVerdict:
    outcome, reason = _judge(chat, seen)
    return ChatVerdict(id=chat.id, outcome=outcome, reason=reason[:2000])


def _judge(chat: GoldenChat, seen: SeenChat) -> tuple[Outcome, str]:
    if seen.error is not None:
        return Outcome.ERRORED, f"not answered: {seen.error}"
    if chat.prompt is not None and seen.prompt is not None and chat.prompt != seen.prompt:
        return Outcome.FAILED, _other_text(chat.prompt, seen.prompt)
    if seen.tokens is not None and seen.tokens != chat.tokens:
        return Outcome.FAILED, _other_tokens(chat.tokens, seen.tokens)
    wanted = len(chat.tokens)
    if seen.size is not None and seen.size != wanted:
        return Outcome.FAILED, f"its prompt has {seen.size} tokens by the usage, want {wanted}"
    if seen.tokens is not None:
        return Outcome.PASSED, f"the {wanted} tokens that were recorded"
    if seen.size is not None:
        why = f"only the number of its tokens is told, {wanted} as recorded"
        return Outcome.PASSED, why
    return Outcome.SKIPPED, "not measured: the endpoint tells neither prompt, tokens nor usage"


def _other_text(wanted: str, found: str) -> str:
    at = _parting(wanted, found)
    start = max(at - _AROUND_CHARS, 0)
    end = at + _AROUND_CHARS
    return (
        f"its prompt differs from character {at}: want {wanted[start:end]!r}, "
        f"got {found[start:end]!r}"
    )


def _other_tokens(wanted: tuple[int, ...], found: tuple[int, ...]) -> str:
    at = _parting(wanted, found)
    start, end = max(at - _AROUND_TOKENS, 0), at + _AROUND_TOKENS
    return (
        f"its tokens differ from number {at}: want {_numbers(wanted[start:end])}, "
        f"got {_numbers(found[start:end])} (of {len(wanted)} and {len(found)})"
    )


def _parting(one: Any, other: Any) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _numbers(ids: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, ids[:12])) + ("…]" if len(ids) > 12 else "]")
