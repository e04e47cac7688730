"""Text into HTML: escaped, with what hides or reorders spelled out. Everything goes through here.

Pure.
"""

from __future__ import annotations

from html import escape

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.visible import UNSAFE, spelled
from engine_pipeline.gates.words import VERDICT

# A second sign beside the word and the colour.
_MARKS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✕",
    Outcome.ERRORED: "?",
    Outcome.INCONCLUSIVE: "≈",
    Outcome.SKIPPED: "–",
}


def shown(text: str) -> str:
    """`text` as content of an element, unsafe characters marked as such."""
    return UNSAFE.sub(
        lambda found: f'<b class="ctl">{escape(spelled(found.group()))}</b>',
        escape(text.replace("\r\n", "\n")),
    )


def attribute(text: str) -> str:
    """`text` as value of a quoted attribute."""
    return escape(UNSAFE.sub(lambda found: spelled(found.group()), text))


def verdict(outcome: Outcome, extra: str = "") -> str:
    """The word of an outcome with its sign; colour comes from the class."""
    mark = f'<span class="mark" aria-hidden="true">{_MARKS[outcome]}</span>'
    kinds = f"verdict {outcome} {extra}".rstrip()
    return f'<span class="{kinds}">{mark}{VERDICT[outcome]}</span>'


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, with the number of those left out."""
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]}\n… {left:,} more characters are not shown"
