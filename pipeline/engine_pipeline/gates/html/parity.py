"""The part of the page that compares with parents: each measure, then where answers part. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.html.text import cut, shown, verdict
from engine_pipeline.gates.markdown_parity import (
    TAG_HEAD,
    divergence_lines,
    divergence_title,
    parity_facts,
    shown_divergences,
    tag_rows,
    title,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.parity_result import ParityResult

_REASON_CHARS = 600


def parity(results: Sequence[ParityResult]) -> str:
    """A section for each parent; nothing without one."""
    return "".join(map(_section, results))


def _section(result: ParityResult) -> str:
    parts = [f"<h2>{shown(title(result))}</h2>", f"<p>{verdict(result.outcome)}</p>"]
    parts.append(f"<p>{shown(cut(result.reason, _REASON_CHARS))}</p>")
    if result.measures is None:
        return "".join(parts)
    measured = "".join(
        f"<li>{verdict(one.outcome)} {shown(one.measure)}: "
        f"{shown(cut(one.reason, _REASON_CHARS))}</li>"
        for one in result.findings
    )
    facts = "".join(f"<li>{shown(cut(fact, _REASON_CHARS))}</li>" for fact in parity_facts(result))
    parts.append(f"<ul>{measured}</ul><ul>{facts}</ul>")
    head = "".join(f'<th scope="col">{name}</th>' for name in TAG_HEAD)
    rows = "".join(
        f"<tr>{''.join(f'<td>{shown(cell)}</td>' for cell in row)}</tr>" for row in tag_rows(result)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    parts.append(f'<div class="scroll" tabindex="0">{table}</div>')
    divergences, left = shown_divergences(result)
    for one in divergences:
        lines = "\n".join(divergence_lines(one))
        parts.append(
            f"<h3>{shown(divergence_title(one, result.measures.unit))}</h3>"
            f'<pre tabindex="0">{shown(lines)}</pre>'
        )
    if left:
        parts.append(f'<p class="none">And {left} more, see report.json.</p>')
    return "".join(parts)
