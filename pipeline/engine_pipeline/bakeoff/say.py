"""Cells that every form of a bake-off shows: terminal, Markdown and page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.goals import lane_limits, metric_words
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.bakeoff.lane_rows import LaneRow
    from engine_pipeline.bakeoff.number import Number
    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.bakeoff.rows import ContestantRow, StepRow

NONE = "-"


def short(number: Number | None, digits: int = 3) -> str:
    """The value alone."""
    if number is None:
        return NONE
    return "∞" if number.value is None else plain(number.value, digits)


def bounded(number: Number | None, digits: int = 3) -> str:
    """The value with what it lies between."""
    if number is None or number.value is None:
        return short(number)
    if number.low == number.high:
        return short(number, digits)
    low = plain(max(number.low or 0.0, 0.0), digits)
    high = "∞" if number.high is None else plain(number.high, digits)
    return f"{short(number, digits)} ({low} to {high})"


def plain(value: float, digits: int = 3) -> str:
    """`0.951`, `93.1`, `1,234`: so many digits that count, never an exponent."""
    if value and (abs(value) >= 10**digits or abs(value) < 1e-3):
        return f"{value:,.0f}" if abs(value) >= 1 else f"{value:.2g}"
    return f"{value:.{digits}g}"


def verdict_words(row: ContestantRow) -> str:
    """Whether a contestant meets the limits, in two words."""
    match row.outcome:
        case Outcome.PASSED:
            return "met"
        case Outcome.FAILED:
            return "missed" if row.steps else "failed"
        case _:
            return "not shown" if row.steps else "not judged"


def cells(row: ContestantRow) -> tuple[str, ...]:
    """Place, name, limits, score, p95 of TTFT and TPOT, tokens/s, cost, requests in flight."""
    at = row.at
    place = NONE if row.place is None else str(row.place)
    if at is None:
        return (place, row.name, verdict_words(row), *[NONE] * 6)
    return (
        place,
        row.name,
        verdict_words(row),
        "-" if row.score is None or row.score.value is None else f"{row.score.value:.3f}",
        *_speed(at),
        short(at.cost),
        str(at.concurrency),
    )


def further_cells(row: ContestantRow) -> list[tuple[str, ...]]:
    """Rows below a contestant's own: its lanes, each at its last step, and structured answers."""
    last = {lane.lane: lane for lane in row.lanes}
    found = [_lane_cells(row.name, lane) for lane in last.values()]
    structured = _structured_cells(row)
    return found if structured is None else [*found, structured]


def _lane_cells(name: str, lane: LaneRow) -> tuple[str, ...]:
    numbers = lane.numbers
    good = number_words("good_share", numbers.get("good_share"), bounds=False)
    return (
        "",
        f"{name}, {lane.lane}",
        f"{_lane_verdict(lane)}{'' if good == NONE else f', {good} good'}",
        "",
        *(
            short(numbers.get(metric))
            for metric in ("ttft_p95_ms", "tpot_p95_ms", "output_tokens_per_s")
        ),
        "",
        lane.at,
    )


def _lane_verdict(lane: LaneRow) -> str:
    return {Outcome.PASSED: "met", Outcome.FAILED: "missed"}.get(lane.outcome, "not shown")


def number_words(metric: str, number: Number | None, *, bounds: bool = True) -> str:
    """A metric of a lane: shares as `96.7%`."""
    if metric != "good_share" or number is None or number.value is None:
        return bounded(number) if bounds else short(number)
    if not bounds:
        return _percent(number.value)
    return f"{_percent(number.value)} ({_percent(number.low)} to {_percent(number.high)})"


def _percent(share: float | None) -> str:
    return f"{share or 0.0:.1%}".replace(".0%", "%")


def lane_note(result: BakeoffResult) -> str:
    """What a lane's row in the table is of; empty without lanes."""
    if not result.file.lanes:
        return ""
    return "A lane is shown at its last step, or with its requests per second as they came."


def lane_heads(result: BakeoffResult) -> tuple[str, ...]:
    """The names of `lane_cells`: what is shown of any lane, and what has a bar or is a priority."""
    return (
        "contestant",
        "lane",
        "bars",
        "at",
        *(_head(metric) for metric in lane_metrics(result)),
        "client late",
        "failed",
    )


def lane_metrics(result: BakeoffResult) -> tuple[str, ...]:
    """Every metric that some lane has a number of."""
    rows = (lane for row in result.contestants for lane in row.lanes)
    return tuple(dict.fromkeys(metric for lane in rows for metric in lane.numbers))


def lane_cells(result: BakeoffResult) -> list[tuple[str, ...]]:
    """Each step of each lane of everybody, with 95 % bounds."""
    metrics = lane_metrics(result)
    return [
        (
            row.name,
            lane.lane,
            _lane_verdict(lane),
            lane.at,
            *(number_words(metric, lane.numbers.get(metric)) for metric in metrics),
            NONE if lane.late_share is None else _percent(lane.late_share),
            failed_words(lane.failed),
        )
        for row in result.in_order
        for lane in row.lanes
    ]


def failed_words(failed: Mapping[str, int]) -> str:
    """Requests that failed, by what went wrong."""
    return ", ".join(f"{count} {kind}" for kind, count in failed.items()) or "none"


def _head(metric: str) -> str:
    return metric_words(metric) + (", ms" if metric.endswith("_ms") else "")


def _structured_cells(row: ContestantRow) -> tuple[str, ...] | None:
    """The row of structured answers; None if none were asked for."""
    if (found := row.structured) is None:
        return None
    step = found.step
    fit = f"{found.valid} of {step.requests} fit"
    return ("", f"{row.name}, JSON", fit, "", *_speed(step), "", str(step.concurrency))


def _speed(step: StepRow) -> tuple[str, str, str]:
    return short(step.ttft_p95_ms), short(step.tpot_p95_ms), short(step.tokens_per_s)


def heads(file: BakeoffFile) -> tuple[str, ...]:
    """The names of `cells`."""
    return (
        "#",
        "contestant",
        "limits",
        "score",
        "TTFT p95",
        "TPOT p95",
        "tokens/s",
        f"{file.currency}/Mtok",
        "in flight",
    )


def asked_for(file: BakeoffFile) -> str:
    """Limits and priorities, in words."""
    wanted = "; ".join(limit_words(file)) or "none but those of the suites"
    return f"Limits: {wanted}. Then the best in {', then '.join(map(str, file.optimise))}."


def limit_words(file: BakeoffFile) -> list[str]:
    """Each limit that is set, and each bar of a lane."""
    limits = file.limits
    said = (
        (limits.min_score, "score at least {:g}"),
        (limits.max_ttft_p95_ms, "TTFT p95 at most {:g} ms"),
        (limits.max_tpot_p95_ms, "TPOT p95 at most {:g} ms"),
        (limits.min_structured_share, "{:.0%} of structured answers fit"),
    )
    lanes = file.lanes or {}
    return [text.format(bar) for bar, text in said if bar is not None] + [
        f"{metric_words(metric)} of {lane} at {_bar_words(metric, bar)}"
        for lane, metric, bar in lane_limits(lanes)
    ]


def _bar_words(metric: str, bar: float) -> str:
    if metric == "good_share":
        return f"least {bar:.0%}"
    return f"most {bar:g} ms" if metric.endswith("_ms") else f"least {bar:g}"


def load_words(result: BakeoffResult) -> str:
    """What was asked of everybody."""
    load, structured = result.file.load, result.file.structured
    steps = ", ".join(map(str, load.concurrency))
    text = (
        f"Suites {', '.join(result.file.suites)}; load: {load.requests} requests of "
        f"{load.output_tokens} tokens each, {steps} in flight"
    )
    for name, bars in (result.file.lanes or {}).items():
        text += f"; lane {name}{_made(result, name)}"
        if bars.slo is not None:
            text += f", good with {bars.slo.words()}"
    if structured is not None:
        text += f"; {structured.requests} structured answers, {structured.concurrency} in flight"
    return f"{text}."


def _made(result: BakeoffResult, lane: str) -> str:
    """What load a lane is, as somebody was measured under it."""
    rows = (one for row in result.contestants for one in row.lanes if one.lane == lane)
    return next((f": {one.load}" for one in rows), "")


def overhead_words(result: BakeoffResult) -> str:
    """What the client adds at most, of the worst time it was measured; empty if it never was."""
    known = [row.overhead for row in result.contestants if row.overhead is not None]
    if not known:
        return ""
    worst = max(known, key=lambda one: one.ttft_p95_ms)
    return (
        f"The measuring client itself adds at most {plain(worst.ttft_p95_ms)} ms to TTFT (p95) and "
        f"{plain(worst.tpot_p50_ms)} ms to TPOT (p50), {worst.in_flight} in flight."
    )


def identity_words(row: ContestantRow) -> str:
    """Who it was, and how far that is known."""
    if row.identity is None:
        return "not reached"
    who = row.identity
    known = "as it was built" if who.verified else "stated, not verified"
    return (
        f"{who.what}; model revision {who.model_revision}, chat template {who.chat_template} "
        f"({known})"
    )


def price_words(row: ContestantRow, currency: str) -> str:
    """What was stated to be paid."""
    price = row.price
    if price is None:
        return "none stated"
    text = f"{price.amount:g} {currency} {price.unit}"
    if price.per_million_input_tokens is not None:
        text += f", {price.per_million_input_tokens:g} {currency} a million input tokens"
    return text
