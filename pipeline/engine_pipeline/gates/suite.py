"""A golden-prompt suite as a value: cases, what each answer must satisfy, how it is sampled. Pure.

What people write is `golden_prompts/<suite>/suite.yaml` (`SuiteFile`) and the case files it names
(`CaseFile`); `suite_file` reads them into one `Suite`. The suite's digest is that of the loaded
content, so moving a case to another file changes nothing.
"""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from engine_pipeline.gates.chat import Message, tool_names
from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.check_kinds import Check, Similar, ToolCalls
from engine_pipeline.gates.grown import Grown
from engine_pipeline.gates.prefix import PrefixBlock
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, canonical_json
from engine_registry.record import Text
from engine_registry.refs import Slug

__all__ = ["Case", "CaseFile", "Message", "Sampling", "Suite", "SuiteFile"]

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MAX_CASES = 2000
MAX_REPEATS = 50
CaseFileName = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*\.yaml$", max_length=200
    ),
]


class Sampling(Value):
    """How answers are drawn; always sent in full, so a server's defaults never decide."""

    temperature: Annotated[float, Field(ge=0.0, le=2.0)]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)]
    max_tokens: Annotated[int, Field(ge=1, le=8192)]


class SamplingOverride(Value):
    """What one case draws differently from its suite."""

    temperature: Annotated[float | None, Field(ge=0.0, le=2.0)] = None
    top_p: Annotated[float | None, Field(gt=0.0, le=1.0)] = None
    seed: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    max_tokens: Annotated[int | None, Field(ge=1, le=8192)] = None


class Quarantine(Value):
    """Why a flaky case does not count for a while; it is asked and shown all the same.

    Attributes:
        owner: who mends it.
        until: the last day on which it does not count.
    """

    owner: Text
    until: date
    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class Recorded(Value):
    """What the reference engine answered when the case was recorded.

    Attributes:
        text: its most frequent answer.
        agreement: share of the `n` runs that gave this very text.
    """

    text: str
    agreement: Share
    n: Annotated[int, Field(ge=1)]


class Case(Grown):
    """One prompt and what its answer must satisfy.

    Attributes:
        tags: what the case is about; scores are also given per tag.
        messages: the chat so far; the last message is the user's, or a tool's.
        prompt: instead of messages: text that no chat template touches, asked of `/v1/completions`.
        tools: what may be called, as the API has it: `{type: function, function: {name, ...}}`.
        tool_choice: `auto`, `none`, `required` or the name of a tool; None leaves it to the server.
        response_format: as the API has it, e.g. `{type: json_object}`.
        repeats: how often it is asked.
        must: failing it even once fails the gate, whatever the score.
        checks: all must pass, and `not-degenerate` besides.
        quarantine: for a while it does not count, and somebody answers for it.
    """

    LATER = frozenset({"prompt", "tools", "tool_choice", "response_format", "quarantine"})

    id: Slug
    tags: Annotated[tuple[Slug, ...], Field(min_length=1)]
    messages: tuple[Message, ...] = ()
    prompt: Annotated[str | None, Field(min_length=1, max_length=200_000)] = None
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=128)] = ()
    tool_choice: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    response_format: dict[str, Any] | None = None
    sampling: SamplingOverride = SamplingOverride()
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    must: bool = False
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    recorded: Recorded | None = None
    quarantine: Quarantine | None = None

    def counts_on(self, today: date | None) -> bool:
        """Whether it counts; one in quarantine does from the day after its last one on.

        Without a day every quarantine holds.
        """
        return self.quarantine is None or (today is not None and today > self.quarantine.until)

    @model_validator(mode="after")
    def _is_askable(self) -> Self:
        if bool(self.messages) == (self.prompt is not None):
            msg = f"case {self.id}: give messages or prompt, one of the two"
            raise ValueError(msg)
        if self.prompt is not None and (self.tools or self.response_format or self.tool_choice):
            msg = f"case {self.id}: tools and response_format need messages, not a raw prompt"
            raise ValueError(msg)
        if self.messages and self.messages[-1].role not in {"user", "tool"}:
            last = self.messages[-1].role
            msg = f"case {self.id}: last message is the {last}'s, want the user's or a tool's"
            raise ValueError(msg)
        if any(message.role == "system" for message in self.messages[1:]):
            msg = f"case {self.id}: a system message is not the first message"
            raise ValueError(msg)
        if len(set(self.tags)) != len(self.tags):
            msg = f"case {self.id}: a tag is given twice"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _has_the_tools_it_wants(self) -> Self:
        names = tool_names(self.tools)
        for check in self.checks:
            wanted = {call.name for call in check.calls} if isinstance(check, ToolCalls) else set()
            if unknown := sorted(wanted - set(names)):
                there = ", ".join(names) or "none"
                msg = f"case {self.id}: wants a call of {', '.join(unknown)}, its tools are {there}"
                raise ValueError(msg)
        if self.tool_choice not in {None, "auto", "none", "required", *names}:
            msg = f"case {self.id}: tool_choice {self.tool_choice} is not one of its tools"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _has_what_it_is_compared_with(self) -> Self:
        nothing = self.recorded is None or not self.recorded.text.strip()
        if nothing and any(isinstance(check, Similar) and not check.to for check in self.checks):
            msg = f"case {self.id}: similar to what? give it `to`, or the case a recorded answer"
            raise ValueError(msg)
        return self

    @property
    def asked(self) -> str:
        """The last words that are put to the model."""
        return self.messages[-1].content if self.prompt is None else self.prompt

    @model_validator(mode="after")
    def _passes_its_own_checks(self) -> Self:
        if self.recorded is None:
            return self
        for verdict in judge_all(self.checks, Answer(text=self.recorded.text)):
            if not verdict.passed:
                msg = f"case {self.id}: its recorded answer fails {verdict.kind}: {verdict.reason}"
                raise ValueError(msg)
        return self


class Reference(Value):
    """The engine whose answers the cases were recorded from.

    Attributes:
        spec: its build spec, e.g. `smollm2-135m-instruct/cpu-x86-64-v3-fp16`.
        engine: its digest; None if it was never recorded in a registry.
        note: how the answers were recorded: host, server, runs.
    """

    spec: Text
    engine: Digest | None = None
    note: Annotated[str, Field(min_length=1, max_length=2000)]


class GoldenChat(Value):
    """One chat and what it becomes before the model sees it.

    Attributes:
        tools: their schemas, as a request gives them.
        prompt: after the chat template; None if the server that it was recorded from does not tell.
        tokens: after the tokenizer.
    """

    id: Slug
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    tools: tuple[dict[str, Any], ...] = ()
    prompt: str | None = None
    tokens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


class TemplateGoldens(Value):
    """`template.yaml`: what chat template and tokenizer make of some chats.

    Attributes:
        reference: whose prompts these are.
        special_tokens: text → number; each must be a single token.
    """

    schema_version: Literal[1]
    reference: Reference
    special_tokens: dict[str, int] = {}
    chats: Annotated[tuple[GoldenChat, ...], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _names_each_chat_once(self) -> Self:
        ids = [chat.id for chat in self.chats]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            msg = f"chat ids given twice: {', '.join(twice)}"
            raise ValueError(msg)
        return self


class _Head(Value):
    name: Slug
    owner: Text
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    model: Slug
    reference: Reference
    sampling: Sampling


class SuiteFile(_Head):
    """`suite.yaml`.

    Attributes:
        model: name of the model that the goldens are for.
        cases: names of the case files beside it.
    """

    schema_version: Literal[1]
    cases: Annotated[tuple[CaseFileName, ...], Field(min_length=1)]


class CaseFile(Value):
    """A file of cases."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


class Suite(_Head, Document):
    """A whole suite, loaded; its `digest` covers every word of every case.

    Attributes:
        template: None if the suite says nothing of chat template and tokenizer.
        prefixes: blocks that its prompts begin with, if it names any.
    """

    cases: Annotated[tuple[Case, ...], Field(min_length=1, max_length=MAX_CASES)]
    template: TemplateGoldens | None = None
    prefixes: tuple[PrefixBlock, ...] = ()

    @property
    def digest(self) -> Digest:
        """The digest that a report carries as the suite it was judged by.

        A suite without `template.yaml`, or without `prefixes.yaml`, has the digest it had before
        there was such a thing.
        """
        absent = {name for name in ("template", "prefixes") if not getattr(self, name)}
        return Digest.of(canonical_json(self.model_dump(mode="json", exclude=absent)))

    @model_validator(mode="after")
    def _names_each_case_once(self) -> Self:
        twice = [
            name for name, count in Counter(case.id for case in self.cases).items() if count > 1
        ]
        if twice:
            msg = f"case ids given twice: {', '.join(sorted(twice)[:10])}"
            raise ValueError(msg)
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag of any case, sorted."""
        return tuple(sorted({tag for case in self.cases for tag in case.tags}))

    def sampling_of(self, case: Case) -> Sampling:
        """The suite's sampling with the case's own values over it."""
        return self.sampling.model_copy(update=case.sampling.model_dump(exclude_none=True))
