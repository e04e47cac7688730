"""The part of the page on chat template and tokenizer: each golden chat, each token. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.html.text import cut, shown, verdict
from engine_pipeline.gates.words import template_rows

if TYPE_CHECKING:
    from engine_pipeline.gates.template import TemplateResult

_REASON_CHARS = 600


def template(result: TemplateResult | None) -> str:
    """A section; nothing if the suite says nothing of them."""
    if result is None:
        return ""
    rows = "".join(
        f"<tr><td>{shown(name)}</td><td>{verdict(outcome)}</td>"
        f"<td>{shown(cut(reason, _REASON_CHARS))}</td></tr>"
        for name, outcome, reason in template_rows(result)
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("chat", "verdict", "why"))
    return (
        f"<h2>Chat template and tokenizer</h2><p>{verdict(result.outcome)} "
        f"{shown(cut(result.reason, _REASON_CHARS))}</p>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
