"""One line of a log of requests: its time and its lengths, whatever its shape. Pure.

Known shapes: OpenAI's usage, flat or within whatever a proxy put around it (LiteLLM's payloads,
records of request and response); Anthropic's and the Responses API's names; and the traces
published with Mooncake (`timestamp` in ms from their start, `input_length`, `output_length`,
`hash_ids` of blocks of the prompt). Text is looked at only to tell whether prompts begin alike, as
digests of pieces that are forgotten with the line.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine_pipeline.workload.lengths import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 4
_PROMPT = ("prompt_tokens", "input_tokens", "input_length", "num_prompt_tokens")
_OUTPUT = ("completion_tokens", "output_tokens", "output_length", "num_generation_tokens")
_CACHED = ("cached_tokens", "cache_read_input_tokens")
_TIMES = (
    "timestamp", "@timestamp", "startTime", "start_time", "arrival_time", "request_time",
    "received_at", "created_at", "created", "time", "ts",
)  # fmt: skip
_STATUS = ("status_code", "status")
_FAILED_WORDS = frozenset({"failure", "failed", "error", "timeout", "cancelled"})
_BLOCK_CHARS = 256
_MAX_BLOCKS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a line says.

    Attributes:
        at_s: seconds on whatever clock the log has; None if it tells no time.
        blocks: the prompt in pieces, each naming all before it as well; none if it cannot be told.
    """

    at_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    blocks: tuple[int, ...] = ()


def read_line(line: bytes) -> Seen | str:
    """What a line says, or why it says nothing that can be used."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(value, dict):
        return "not an object"
    if _failed(value):
        return "a request that failed"
    prompt, output = _count(value, _PROMPT), _count(value, _OUTPUT)
    if prompt is None:
        return "no prompt tokens"
    if output is None:
        return "no output tokens"
    if not (0 < prompt <= MAX_TOKENS and 0 < output <= MAX_TOKENS):
        return f"lengths outside 1 to {MAX_TOKENS}"
    return Seen(
        at_s=_time(value),
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=_count(value, _CACHED),
        blocks=_blocks(value),
    )


def _within(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The object and those within it, outermost first; lists are not looked into."""
    queue = deque([(value, 0)])
    while queue:
        here, depth = queue.popleft()
        yield here
        if depth < _DEPTH:
            queue.extend((one, depth + 1) for one in here.values() if isinstance(one, dict))


def _count(value: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for here in _within(value):
        for name in names:
            found = here.get(name)
            if isinstance(found, int) and not isinstance(found, bool):
                return found
    return None


def _failed(value: dict[str, Any]) -> bool:
    if value.get("error") or value.get("exception"):
        return True
    for name in _STATUS:
        found = value.get(name)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 400:
            return True
        if isinstance(found, str) and found.lower() in _FAILED_WORDS:
            return True
    return False


def _time(value: dict[str, Any]) -> float | None:
    for here in _within(value):
        for name in _TIMES:
            found = here.get(name)
            at = _seconds(found)
            if at is not None:
                # Mooncake counts milliseconds from the start of its trace.
                return at / 1000 if "input_length" in here and at < 1e9 else at
    return None


def _seconds(found: Any) -> float | None:
    """Seconds since 1970, or since whatever it counts from."""
    if isinstance(found, str):
        try:
            read = datetime.fromisoformat(found)
        except ValueError:
            return None
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        return None
    # Numbers so large are seconds of no century: milli-, micro- or nanoseconds since 1970.
    for least, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if found > least:
            return found / unit
    return float(found)


def _blocks(value: dict[str, Any]) -> tuple[int, ...]:
    ids = value.get("hash_ids")
    if isinstance(ids, list):
        return tuple(hash(one) for one in ids if isinstance(one, int | str))[:_MAX_BLOCKS]
    for here in _within(value):
        for name in ("messages", "prompt"):
            if isinstance(here.get(name), list | str) and here[name]:
                return _digests(here[name])
    return ()


def _digests(text: Any) -> tuple[int, ...]:
    whole = (text if isinstance(text, str) else json.dumps(text)).encode("utf-8", "surrogatepass")
    running = hashlib.blake2b(digest_size=8)
    found = []
    # What does not fill a block is no common beginning worth a name.
    for at in range(0, len(whole) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
        running.update(whole[at : at + _BLOCK_CHARS])
        found.append(int.from_bytes(running.digest()))
        if len(found) == _MAX_BLOCKS:
            break
    return tuple(found)
