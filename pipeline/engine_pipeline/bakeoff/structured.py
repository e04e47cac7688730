"""Asks for JSON under a schema, so many requests at a time, and judges and times every answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine_pipeline.bakeoff.measured import StructuredResult
from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.json_answer import defect
from engine_pipeline.gates.load import Load
from engine_pipeline.gates.speed import summarise
from engine_pipeline.gates.suite import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.bakeoff.file import StructuredLoad
    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.progress import Progress

_DEFECT_CHARS = 160


async def ask_structured(
    client: ChatClient,
    load: StructuredLoad,
    *,
    progress: Progress,
    gone: Callable[[], str | None],
) -> StructuredResult:
    """Send every request of `load` after one to warm up.

    Args:
        client: an open client.
        load: what to ask.
        progress: told after each answer.
        gone: says why there is no server any more; waited for a little if connections were lost.
    """
    sampling = Sampling(temperature=0.0, top_p=1.0, seed=0, max_tokens=load.output_tokens)
    extra = {"response_format": response_format(load)}
    # The grammar of a schema is compiled once: that is not part of anybody's TTFT.
    await client.ask(load.prompt(load.requests), sampling, extra)
    progress.update(0, load.requests, "structured answers")
    work = iter(range(load.requests))
    replies: list[Reply] = []

    async def ask_on() -> None:
        for index in work:
            replies.append(await client.ask(load.prompt(index), sampling, extra))
            progress.update(len(replies), load.requests, "structured answers")

    async with asyncio.TaskGroup() as group:
        for _ in range(load.concurrency):
            group.create_task(ask_on())
    if any(reply.error and reply.error.lost_connection for reply in replies):
        await settle(gone)
    wrong = Counter(why for reply in replies if (why := what_is_wrong(reply, load)) is not None)
    as_load = Load(
        requests=load.requests,
        concurrency=load.concurrency,
        output_tokens=load.output_tokens,
        warmup_requests=1,
    )
    return StructuredResult(
        requests=len(replies),
        valid=len(replies) - wrong.total(),
        defects=dict(sorted(wrong.items())),
        speed=summarise(replies, as_load, ignores_eos=False),
    )


def response_format(load: StructuredLoad) -> dict[str, Any]:
    """The field that asks for the schema, in the form that the OpenAI API gave it."""
    schema = {"name": "answer", "strict": True, "schema": load.json_schema}
    return {"type": "json_schema", "json_schema": schema}


def what_is_wrong(reply: Reply, load: StructuredLoad) -> str | None:
    """Why an answer does not count as valid; None if it does."""
    if reply.error is not None:
        return reply.error.name
    if reply.finish_reason == "length":
        return f"not finished within {load.output_tokens} tokens"
    found = defect(reply.text, load.json_schema, fenced=False)
    return None if found is None else found[:_DEFECT_CHARS]
