"""Blocks that many prompts begin with, and how much of a suite's prompts they are. Pure.

A system prompt, the schemas of tools and the header before retrieved text come first in a prompt,
so a server's prefix cache holds them once for all requests. Change a letter of such a block and
every cache starts cold with it; so each has a digest, which a report names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from engine_pipeline.gates.chat import tool_names
from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.suite import Case

PREFIXES = "prefix blocks"


class PrefixBlock(Value):
    """One block, as `prefixes.yaml` has it; at least one part.

    Attributes:
        system: the whole system prompt.
        tools: their schemas, as requests give them.
        opening: what the message after the system prompt begins with, such as a header before
            retrieved text.
    """

    id: Slug
    system: Annotated[str | None, Field(min_length=1, max_length=100_000)] = None
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=128)] = ()
    opening: Annotated[str | None, Field(min_length=1, max_length=100_000)] = None

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        tool_names(self.tools)
        if self.system is None and not self.tools and self.opening is None:
            msg = f"block {self.id} is empty: give system, tools or opening"
            raise ValueError(msg)
        return self

    @property
    def digest(self) -> Digest:
        """Of what it says; its name is no part of it."""
        return Digest.of(canonical_json(self.model_dump(mode="json", exclude={"id"})))

    @property
    def chars(self) -> int:
        """Its length, tools as canonical JSON."""
        return len(self.system or "") + _tool_chars(self.tools) + len(self.opening or "")

    def begins(self, case: Case) -> bool:
        """Whether the case's prompt begins with this block."""
        messages = case.messages
        if not messages:
            return False
        system = messages[0].content if messages[0].role == "system" else None
        first = messages[1:] if system is not None else messages
        return (
            self.system == system
            and list(self.tools) == list(case.tools)
            and (
                self.opening is None or (bool(first) and first[0].content.startswith(self.opening))
            )
        )


class PrefixFile(Value):
    """`prefixes.yaml` beside `suite.yaml`."""

    schema_version: Literal[1]
    prefixes: Annotated[tuple[PrefixBlock, ...], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _names_each_block_once(self) -> Self:
        ids = [block.id for block in self.prefixes]
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            msg = f"block ids given twice: {', '.join(twice)}"
            raise ValueError(msg)
        return self


class PrefixUse(Value):
    """One block of a report: what it is, and in how many cases it comes first."""

    id: Slug
    digest: Digest
    chars: int
    cases: int


class PrefixResult(Value):
    """How much of a suite's prompts its blocks are.

    Attributes:
        covered: of `cases`, those that begin with a block.
        share: characters of blocks among all characters of all prompts.
    """

    blocks: tuple[PrefixUse, ...]
    cases: int
    covered: int
    share: float

    @property
    def words(self) -> str:
        """In one line."""
        return (
            f"{len(self.blocks)} {'block begins' if len(self.blocks) == 1 else 'blocks begin'} "
            f"{self.covered} of {self.cases} prompts and make {self.share:.0%} of their text"
        )


def measure_prefixes(blocks: Sequence[PrefixBlock], cases: Sequence[Case]) -> PrefixResult | None:
    """The coverage of `cases` by `blocks`, each case by the longest that fits; None without any."""
    if not blocks:
        return None
    longest = sorted(blocks, key=lambda block: -block.chars)
    used = {block.id: 0 for block in blocks}
    covered_chars = total = 0
    for case in cases:
        total += _prompt_chars(case)
        block = next((block for block in longest if block.begins(case)), None)
        if block is not None:
            used[block.id] += 1
            covered_chars += block.chars
    return PrefixResult(
        blocks=tuple(
            PrefixUse(id=block.id, digest=block.digest, chars=block.chars, cases=used[block.id])
            for block in blocks
        ),
        cases=len(cases),
        covered=sum(used.values()),
        share=round(covered_chars / total, 4) if total else 0.0,
    )


def cold_blocks(now: PrefixResult | None, live: PrefixResult | None) -> tuple[str, ...]:
    """Blocks that live's report does not know as they are now: caches start cold with them."""
    if now is None or live is None:
        return ()
    known = {block.digest for block in live.blocks}
    return tuple(block.id for block in now.blocks if block.digest not in known)


def _prompt_chars(case: Case) -> int:
    said = sum(len(message.content) for message in case.messages) + len(case.prompt or "")
    return said + _tool_chars(case.tools)


def _tool_chars(tools: Sequence[dict[str, Any]]) -> int:
    return len(canonical_json(list(tools)).decode()) if tools else 0
