"""Cells that every form of a bake-off shows: terminal, Markdown and page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from engine_pipeline.bakeoff.file import BakeoffFile, Limits
    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.bakeoff.rows import ContestantRow, Number, StepRow

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


def structured_cells(row: ContestantRow) -> tuple[str, ...] | None:
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
    wanted = "; ".join(limit_words(file.limits)) or "none but those of the suites"
    return f"Limits: {wanted}. Then the best in {', then '.join(map(str, file.optimise))}."


def limit_words(limits: Limits) -> list[str]:
    """Each limit that is set."""
    said = (
        (limits.min_score, "score at least {:g}"),
        (limits.max_ttft_p95_ms, "TTFT p95 at most {:g} ms"),
        (limits.max_tpot_p95_ms, "TPOT p95 at most {:g} ms"),
        (limits.min_structured_share, "{:.0%} of structured answers fit"),
    )
    return [text.format(bar) for bar, text in said if bar is not None]


def load_words(result: BakeoffResult) -> str:
    """What was asked of everybody."""
    load, structured = result.file.load, result.file.structured
    steps = ", ".join(map(str, load.concurrency))
    text = (
        f"Suites {', '.join(result.file.suites)}; load: {load.requests} requests of "
        f"{load.output_tokens} tokens each, {steps} in flight"
    )
    if structured is not None:
        text += f"; {structured.requests} structured answers, {structured.concurrency} in flight"
    return f"{text}."


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
