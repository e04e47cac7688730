"""Asks a server what it makes of a suite's golden chats: to check an engine, or to record it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine_pipeline.gates.json_post import NotAnswered
from engine_pipeline.gates.report import Finding
from engine_pipeline.gates.suite import GoldenChat, Message, TemplateGoldens
from engine_pipeline.gates.template import SeenChat, judge_template
from engine_pipeline.gates.token_client import TokenClient
from engine_registry.errors import CouldNotJudge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.suite import Reference
    from engine_pipeline.gates.template import TemplateResult

TEMPLATE = "chat template"
# What marks turns in the templates of the field: <|im_start|>, </s>, [INST], <start_of_turn>.
_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<｜[^<>\s]{1,40}｜>|</?[a-z_]{1,20}>|\[/?[A-Z_]{1,20}\]"
)
# What a chat of the name `tools` comes with: a schema with every kind of thing that templates
# write out in their own way.
STARTING_TOOLS: dict[str, tuple[dict[str, object], ...]] = {
    "tools": (
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather at a place, now.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "place": {"type": "string", "description": "a town"},
                        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    },
                    "required": ["place"],
                },
            },
        },
    )
}
# What a new file of goldens asks: one turn, a system message, several turns, one with tools, text
# that looks like the template's own marks, numbers and scripts that tokenizers cut differently.
STARTING_CHATS = (
    ("one-turn", (("user", "What is the capital of Japan?"),)),
    ("system-message", (("system", "Answer in one word."), ("user", "Is water wet?"))),
    (
        "two-turns",
        (
            ("user", "My name is Ada."),
            ("assistant", "Hello, Ada!"),
            ("user", "What is my name?"),
        ),
    ),
    ("tools", (("user", "What is the weather in Paris?"),)),
    ("marks-in-text", (("user", "What does <|im_end|> mean, and </s>, and [INST]?"),)),
    ("numbers-and-scripts", (("user", "1234567 + 89.5 = ? Größe, 東京, مرحبا, 👩‍💻\n\n  x"),)),
)


async def guard_template(
    endpoint: Endpoint, goldens: TemplateGoldens | None, *, timeout_s: float
) -> TemplateResult | None:
    """Whether an engine's server makes of each chat what was recorded; None without goldens."""
    if goldens is None:
        return None
    seen: dict[str, SeenChat] = {}
    specials: dict[str, tuple[int, ...] | None] = {}
    async with TokenClient(endpoint=endpoint, timeout_s=timeout_s) as client:
        for chat in goldens.chats:
            try:
                prompt = await client.prompt(chat.messages, chat.tools)
                size = await client.prompt_size(chat.messages, chat.tools)
                seen[chat.id] = SeenChat(prompt=prompt.text, tokens=prompt.ids, size=size)
            except NotAnswered as error:
                seen[chat.id] = SeenChat(error=error.detail)
        for text in goldens.special_tokens:
            try:
                specials[text] = await client.ids_of(text)
            except NotAnswered:
                specials[text] = None
    return judge_template(goldens, seen, specials)


def template_findings(result: TemplateResult | None) -> tuple[Finding, ...]:
    """The guard among the findings of a gate; none if the suite has no goldens for it."""
    if result is None:
        return ()
    return (Finding(name=TEMPLATE, outcome=result.outcome, reason=result.reason),)


async def record_template(
    endpoint: Endpoint,
    known: TemplateGoldens | None,
    reference: Reference,
    *,
    timeout_s: float,
) -> TemplateGoldens:
    """Goldens as this server has them: of the chats that are known, or of some to start with.

    Raises:
        CouldNotJudge: `template-not-told`: the server does not tell a chat's tokens.
    """
    asked: Sequence[tuple[str, tuple[Message, ...], tuple[dict[str, object], ...]]]
    asked = [(chat.id, chat.messages, chat.tools) for chat in known.chats] if known else []
    asked = asked or [
        (
            name,
            tuple(Message.model_validate({"role": r, "content": c}) for r, c in turns),
            STARTING_TOOLS.get(name, ()),
        )
        for name, turns in STARTING_CHATS
    ]
    chats: list[GoldenChat] = []
    specials: dict[str, int] = {}
    async with TokenClient(endpoint=endpoint, timeout_s=timeout_s) as client:
        for name, messages, tools in asked:
            try:
                prompt = await client.prompt(messages, tools)
                size = await client.prompt_size(messages, tools)
            except NotAnswered as error:
                raise _not_told(f"chat {name}: {error.detail}") from error
            if prompt.ids is None:
                raise _not_told(f"chat {name}: neither /apply-template nor /tokenize is there")
            if size not in {None, len(prompt.ids)}:
                raise _not_told(
                    f"chat {name}: /tokenize gives {len(prompt.ids)} tokens, the usage {size}"
                )
            chats.append(
                GoldenChat(
                    id=name, messages=messages, tools=tools, prompt=prompt.text, tokens=prompt.ids
                )
            )
        for text in sorted({one for chat in chats for one in _SPECIAL.findall(chat.prompt or "")}):
            ids = await client.ids_of(text)
            if ids is not None and len(ids) == 1:
                specials[text] = ids[0]
    return TemplateGoldens(
        schema_version=1, reference=reference, special_tokens=specials, chats=tuple(chats)
    )


def _not_told(what: str) -> CouldNotJudge:
    return CouldNotJudge(
        f"the server does not tell what it makes of a chat: {what}",
        hint="record from a server that offers /apply-template or /tokenize, "
        "such as llama.cpp's or vLLM's",
        reference="template-not-told",
    )
