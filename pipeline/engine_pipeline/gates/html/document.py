"""The whole page, filled into `page.html`: verdict first, then numbers, answers, circumstances."""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from engine_pipeline.gates.differences import Live, rows
from engine_pipeline.gates.html.cases import golden_prompts
from engine_pipeline.gates.html.lanes import facts_list, lanes
from engine_pipeline.gates.html.parity import parity
from engine_pipeline.gates.html.plots import distributions, paired_distributions, plots
from engine_pipeline.gates.html.ratios import ratios
from engine_pipeline.gates.html.table import bars
from engine_pipeline.gates.html.template import template
from engine_pipeline.gates.html.text import attribute, cut, shown, verdict
from engine_pipeline.gates.lane_words import gpu_facts
from engine_pipeline.gates.markdown_paired import paired_facts
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.under_load_result import under_load_facts
from engine_pipeline.gates.words import (
    MEANING,
    VERDICT,
    advisers,
    failures,
    next_step,
    prefix_facts,
    where,
)

if TYPE_CHECKING:
    from engine_pipeline.gates.differences import Beside
    from engine_pipeline.gates.paired_result import ClientOverhead, PairedResult
    from engine_pipeline.gates.report import PerformanceResult, Report

_REASON_CHARS = 600
_LOG_LINES = 40
_LOG_CHARS = 400


def to_html(report: Report, beside: Beside) -> str:
    """The report as one page that asks nothing of the network and runs no script.

    Args:
        report: what is told.
        beside: the report of what was live then, or why there is none.
    """
    live = beside.report if isinstance(beside, Live) else None
    page = resources.files("engine_pipeline.gates.html").joinpath("page.html")
    return Template(page.read_text(encoding="utf-8")).substitute(
        title=attribute(f"{VERDICT[report.outcome]}: {report.gate} on {_name(report)}"),
        outcome=str(report.outcome),
        verdict=verdict(report.outcome, "big"),
        gate=shown(report.gate),
        subject=_subject(report),
        meaning=shown(MEANING[report.outcome]),
        reasons=_reasons(report),
        next=shown(next_step(report)),
        beside=_beside(beside),
        bars=bars(rows(report, beside), has_live=live is not None or report.paired is not None),
        speed=_speed(report, live),
        template=template(report.template),
        parity=parity(report.parity),
        cases=golden_prompts(report, beside) + _under_load(report),
        log=_log(report),
        facts=_facts(report, beside),
        definitions="".join(
            f"<dt>{shown(name)}</dt><dd>{shown(text)}</dd>"
            for name, text in sorted(report.definitions.items())
        ),
    )


def _name(report: Report) -> str:
    return report.subject if report.engine is None else report.engine.short


def _subject(report: Report) -> str:
    if report.engine is None:
        return shown(report.subject)
    return f"engine <code>{shown(report.engine.short)}</code>"


def _reasons(report: Report) -> str:
    if report.outcome is Outcome.PASSED:
        return "<p>Every bar was met.</p>"
    reasons = [shown(cut(reason, _REASON_CHARS)) for reason in report.reasons]
    return f"<ul>{''.join(f'<li>{reason}</li>' for reason in reasons)}</ul>"


def _beside(beside: Beside) -> str:
    if isinstance(beside, Live):
        word = VERDICT[beside.report.outcome]
        live = shown(beside.report.judged_engine.short)
        return (
            f"<p>Live is {shown(beside.named)}, engine "
            f"<code>{live}</code>: {word} under the same bars at "
            f"{beside.report.finished_at:%Y-%m-%d %H:%M} UTC.</p>"
        )
    return f'<p class="nobase"><strong>No baseline</strong>: {shown(beside.reason)}.</p>'


def _speed(report: Report, live: Report | None) -> str:
    result = report.performance
    if result is None and report.lanes:
        speed = ""
    elif result is None:
        why = next((f.reason for f in report.findings if f.name == "performance"), "not examined")
        speed = f'<p class="none">Speed was not judged: {shown(why)}.</p>'
    else:
        tokens = result.metrics.get("output_tokens_per_s")
        boards = facts_list(gpu_facts(result.gpus, result.disturbed, tokens))
        speed = f"<p>{_load(result)}</p>{boards}{distributions(report, live)}"
    return speed + lanes(report, live) + _in_turn(report.paired)


def _in_turn(result: PairedResult | None) -> str:
    if result is None:
        return ""
    figures = plots([*paired_distributions(result), ratios(result)])
    return f"<h3>In turn with live</h3>{facts_list(paired_facts(result))}{figures}"


def _load(result: PerformanceResult) -> str:
    eos = "ignored" if result.ignores_eos else "obeyed, so answers differ in length"
    failed = failures(result.failed)
    cached = "an unknown share" if result.cached_share is None else f"{result.cached_share:.0%}"
    return shown(
        f"{result.requests} requests of {result.output_tokens} tokens each, {result.concurrency} "
        f"in flight, after {result.warmup_requests} to warm up. End of sequence {eos}. "
        f"Failed: {failed}. From the prompt cache: {cached}."
    )


def _under_load(report: Report) -> str:
    facts = facts_list(under_load_facts(report.under_load))
    return f"<h3>Under load</h3>{facts}" if facts else ""


def _log(report: Report) -> str:
    warnings = "".join(f"<li>{shown(line)}</li>" for line in report.load.warnings)
    parts = [f"<h2>What the server warned of</h2><ul>{warnings}</ul>"] if warnings else []
    if report.load.log:
        lines = "\n".join(line[:_LOG_CHARS] for line in report.load.log[-_LOG_LINES:])
        parts.append(
            f'<h2>Last lines of the server’s log</h2><pre tabindex="0">{shown(lines)}</pre>'
        )
    return "".join(parts)


def _facts(report: Report, beside: Beside) -> str:
    load = "" if report.load.load_s is None else f", in {report.load.load_s:.1f} s"
    client = _client(report)
    pairs = [
        *where(report),
        ("Live engine", str(beside.report.engine) if isinstance(beside, Live) else "no baseline"),
        ("Live report", str(beside.attached) if isinstance(beside, Live) else "–"),
        ("Suite", f"{report.suite_name}, {report.suite}"),
        ("Bars", str(report.policy_digest)),
        ("Loaded", f"{VERDICT[report.load.outcome]}{load}"),
        ("Client", _words(report.client)),
        *prefix_facts(report, beside.report if isinstance(beside, Live) else None),
        *advisers(report),
        (
            "Client’s own time",
            "not measured by this gate"
            if client is None
            else f"at most {client.ttft_p50_ms:.2f} ms of a TTFT and {client.tpot_p50_ms:.2f} ms "
            f"of a TPOT, {client.in_flight} in flight",
        ),
        (
            "Time",
            f"{report.started_at:%Y-%m-%d %H:%M:%S} to {report.finished_at:%H:%M:%S} UTC",
        ),
    ]
    # Names as sentences begin, values as they are.
    return "".join(
        f"<dt>{name[0].upper()}{name[1:]}</dt><dd>{shown(text)}</dd>" for name, text in pairs
    )


def _client(report: Report) -> ClientOverhead | None:
    parts = (report.paired, report.performance, *report.lanes)
    return next((part.client for part in parts if part and part.client), None)


def _words(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "not known"
