"""A report for people: the verdict and why on top, then what failed, then the numbers. Pure.

Tables fit 100 columns as plain text, since they are read in terminals as often as in browsers.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from engine_pipeline.gates import lane_words, markdown_parity
from engine_pipeline.gates.markdown_paired import HEAD, advice, paired_facts, paired_rows
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.standing import flakiness
from engine_pipeline.gates.under_load_result import under_load_facts
from engine_pipeline.gates.visible import visible
from engine_pipeline.gates.words import (
    MEANING,
    advisers,
    failures,
    prefix_facts,
    similarity_rows,
    template_rows,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.gates.lane_result import LaneResult
    from engine_pipeline.gates.measured import Measured
    from engine_pipeline.gates.paired_bars import PairedBars
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.policy import PerformanceBars
    from engine_pipeline.gates.report import Attempt, CaseResult, PerformanceResult, Report
    from engine_pipeline.gates.template import TemplateResult

_WIDTH = 98
_CELL = 78
_SHOWN_CASES = 30
_SHOWN_TEXT = 300


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [
        f"# {report.outcome.upper()}: gate {report.gate} on {_inline(report.subject)}",
        f"{report.outcome.capitalize()} means: {MEANING[report.outcome]}.",
        _why(report),
        _findings(report),
        _log(report),
        _unhappy_cases(report),
        _tags(report),
        _similarity(report),
        _section("Flaky cases", [flakiness(case) for case in report.cases if case.is_flaky]),
        _section("Under load", under_load_facts(report.under_load)),
        _template(report.template),
        *map(_parity, report.parity),
        _performance(report.performance, report.policy.performance),
        *map(_lane, report.lanes),
        _paired(report.paired, report.policy.paired),
        _circumstances(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _why(report: Report) -> str:
    if report.outcome is Outcome.PASSED:
        return "Every bar was met."
    return "\n".join(["Because:", "", *map(_bullet, report.reasons)])


def _findings(report: Report) -> str:
    lines = [
        _bullet(f"{finding.outcome.upper()} {finding.name}: {finding.reason}")
        for finding in report.findings
    ]
    return "\n".join(["## What was examined", "", *lines])


def _log(report: Report) -> str:
    if not report.load.log:
        return ""
    return "\n".join(["## Last lines of the server's log", "", *_block("\n".join(report.load.log))])


def _unhappy_cases(report: Report) -> str:
    unhappy = [case for case in report.cases if case.outcome is not Outcome.PASSED]
    if not unhappy:
        return ""
    unhappy.sort(key=lambda case: (not case.must, case.outcome is not Outcome.FAILED))
    shown = [_case(case) for case in unhappy[:_SHOWN_CASES]]
    left = len(unhappy) - len(shown)
    more = [f"And {left} more: see report.json."] if left else []
    title = f"## Cases that did not pass ({len(unhappy)} of {len(report.cases)})"
    return "\n\n".join([title, *shown, *more])


def _case(case: CaseResult) -> str:
    attempts = [attempt for attempt in case.attempts if attempt.outcome is not Outcome.PASSED]
    worst = next((item for item in attempts if item.outcome is Outcome.FAILED), attempts[0])
    must = ", must pass" if case.must else ""
    must += "" if case.counts else ", in quarantine: does not count"
    count = f"{len(attempts)} of {len(case.attempts)} times" if len(case.attempts) > 1 else ""
    title = f"### {case.id}: {case.outcome} {count}".rstrip()
    lines = [title, "", f"Tags: {', '.join(case.tags)}{must}", "", *_reasons(worst)]
    if worst.said:
        lines += ["", "Answer:", "", *_block(_cut(worst.said, _SHOWN_TEXT))]
    return "\n".join(lines)


def _reasons(attempt: Attempt) -> list[str]:
    if attempt.error is not None:
        return [_bullet(attempt.error)]
    return [_bullet(f"{v.kind}: {v.reason}") for v in attempt.checks if not v.passed]


def _tags(report: Report) -> str:
    if not report.tags:
        return ""
    rows = [
        (score.tag, f"{score.passed}/{score.cases}", f"{score.score:.3f}", _bar(score.bar))
        for score in report.tags
    ]
    return "## Scores\n\n" + _table(("tag", "passed", "score", "bar"), rows)


def _similarity(report: Report) -> str:
    rows = similarity_rows(report)
    if not rows:
        return ""
    table = _table(("case", "similarity", "at least", "verdict"), rows[:_SHOWN_CASES])
    left = len(rows) - _SHOWN_CASES
    more = [f"And {left} more: see report.json."] if left > 0 else []
    return "\n\n".join(["## Similarity to references", table, *more])


def _section(title: str, facts: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *map(_bullet, facts)]) if facts else ""


def _template(result: TemplateResult | None) -> str:
    # One that is as it should be is told among the findings.
    if result is None or result.outcome is Outcome.PASSED:
        return ""
    told = [f"{name}: {outcome}: {reason}" for name, outcome, reason in template_rows(result)]
    return _section("Chat template and tokenizer", told)


def _performance(result: PerformanceResult | None, bars: PerformanceBars | None) -> str:
    if result is None or bars is None:
        return ""
    wanted = {
        "ttft_p95_ms": ("at most", bars.max_ttft_p95_ms),
        "tpot_p95_ms": ("at most", bars.max_tpot_p95_ms),
        "output_tokens_per_s": ("at least", bars.min_output_tokens_per_s),
    }
    rows = []
    for name, item in sorted(result.metrics.items()):
        side, bar = wanted.get(name, ("", None))
        said = "" if bar is None else f"{side} {bar:g}"
        rows.append((name, _number(item.value), said, _bounds(item), item.unit, str(item.n)))
    failed = failures(result.failed)
    eos = "ignored" if result.ignores_eos else "obeyed, so answers differ in length"
    lines = [
        "## Speed",
        "",
        f"{result.requests} requests of {result.output_tokens} tokens each, "
        f"{result.concurrency} in flight, after {result.warmup_requests} to warm up.",
        f"End of sequence {eos}. Failed: {failed}.",
        f"Prompt tokens: {_number(result.prompt_tokens_mean)} on average, "
        f"{_percent(result.cached_share)} from the prompt cache.",
        *([lane_words.added(result.client)] if result.client is not None else []),
        *lane_words.gpu_facts(
            result.gpus, result.disturbed, result.metrics.get("output_tokens_per_s")
        ),
        "",
        _table(("metric", "value", "bar", "95 % bounds", "unit", "n"), rows),
    ]
    return "\n".join(lines)


def _lane(lane: LaneResult) -> str:
    parts = [f"## Lane {lane.name}", "\n".join(map(_bullet, lane_words.lane_facts(lane)))]
    for step in lane.steps:
        parts.append(f"### {lane_words.step_title(step)}")
        parts.append(_table(lane_words.HEAD, lane_words.step_rows(step)))
        parts.append("\n".join(map(_bullet, lane_words.step_facts(step))))
    return "\n\n".join(parts)


def _paired(result: PairedResult | None, bars: PairedBars | None) -> str:
    if result is None:
        return ""
    verdict = _bullet(f"{result.outcome.upper()}: {result.reason}")
    parts = ["## Against the live engine", verdict]
    if result.comparisons:
        parts.append(_table(HEAD, paired_rows(result)))
    parts.append("\n".join(map(_bullet, paired_facts(result))))
    if bars is not None and (what := advice(result, bars.max_rounds)) is not None:
        parts.append(f"Next: {what}")
    return "\n\n".join(parts)


def _parity(result: ParityResult) -> str:
    parts = [
        f"## {_inline(markdown_parity.title(result))}",
        _bullet(f"{result.outcome.upper()}: {result.reason}"),
    ]
    if result.measures is None:
        return "\n\n".join(parts)
    facts = [*(f"{m}: {o}: {why}" for m, o, why in markdown_parity.measure_rows(result))]
    parts.append("\n".join(map(_bullet, [*facts, *markdown_parity.parity_facts(result)])))
    parts.append(_table(markdown_parity.TAG_HEAD, markdown_parity.tag_rows(result)))
    shown, left = markdown_parity.shown_divergences(result)
    for one in shown:
        heading = markdown_parity.divergence_title(one, result.measures.unit)
        lines = _block("\n".join(markdown_parity.divergence_lines(one)))
        parts.append("\n".join([f"### {_inline(heading)}", "", *lines]))
    if left:
        parts.append(f"And {left} more: see report.json.")
    return "\n\n".join(parts)


def _circumstances(report: Report) -> str:
    load = "" if report.load.load_s is None else f" in {report.load.load_s:.1f} s"
    rows = [
        *where(report),
        ("suite", report.suite_name),
        ("suite digest", str(report.suite)),
        ("policy digest", str(report.policy_digest)),
        ("loaded", f"{report.load.outcome}{load}"),
        ("client", _pairs(report.client)),
        *prefix_facts(report),
        *advisers(report),
        ("time", f"{report.started_at:%Y-%m-%d %H:%M:%S} to {report.finished_at:%H:%M:%S} UTC"),
    ]
    cut = [(what, _cut(" ".join(value.split()), _CELL)) for what, value in rows]
    meanings = [_bullet(f"{name}: {text}") for name, text in sorted(report.definitions.items())]
    parts = ["## Circumstances", "", _table(("what", "value"), cut)]
    return "\n".join(parts + (["", *meanings] if meanings else []))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [[visible(cell).replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *body]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, body)])


def _bullet(text: str) -> str:
    return textwrap.fill(
        f"- {_inline(text)}",
        width=_WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _block(text: str) -> list[str]:
    """An indented block: no fence that the text itself could close."""
    return [f"    {line}".rstrip() for line in visible(text).split("\n")]


def _inline(text: str) -> str:
    """Text of an answer within a line, without Markdown or HTML of its own."""
    plain = visible(" ".join(text.split()))
    return "".join(f"\\{char}" if char in "\\`*<>[]|#" else char for char in plain)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _number(value: float | None) -> str:
    return "beyond measure" if value is None else f"{value:.4g}"


def _bounds(item: Measured) -> str:
    return f"{_number(item.low)} to {_number(item.high)}"


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{share:.0%}"


def _bar(bar: float | None) -> str:
    return "" if bar is None else f"{bar:.3f}"


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "-"
