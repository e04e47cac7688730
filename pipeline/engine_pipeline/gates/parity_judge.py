"""From a comparison with a parent to findings: each measure against its bar. Pure.

A bar whose measure is missing is inconclusive, never met: an endpoint without log probabilities
cannot show what the policy asks for. Divergences that cannot be told from ties might all be real or
none; only if the bar lies between the two is the finding inconclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.parity_result import ParityFinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.parity_bars import ParityBars
    from engine_pipeline.gates.parity_result import ParityMeasures, TagDrop

# A fall beyond the bar fails only if so few losses in a row would be chance: one-sided, per tag.
SIGNIFICANCE = 0.05
_ROUNDING = 1e-9
_NO_LOGPROBS = "not measured: the endpoint gives no log probabilities"


def judge_parity(
    measures: ParityMeasures, tags: Sequence[TagDrop], bars: ParityBars
) -> tuple[ParityFinding, ...]:
    """A finding for each measure, skipped where the policy has no bar for it."""
    return (
        _prefix(measures, bars.min_prefix_agreement),
        _divergences(measures, bars),
        _at_least("top-1 agreement", measures.top1_agreement, bars.min_top1_agreement, measures),
        _kl(measures, bars.max_kl),
        _tags(tags, bars.max_tag_drop),
    )


def sum_up(findings: Sequence[ParityFinding]) -> tuple[Outcome, str]:
    """The outcome of the comparison and what decided it."""
    judged = [one for one in findings if one.outcome is not Outcome.SKIPPED]
    outcome = combine(one.outcome for one in judged)
    if outcome is Outcome.PASSED:
        values = (f"{one.measure} {one.reason.split(',')[0].split(';')[0]}" for one in judged)
        return outcome, f"every bar is met: {'; '.join(values)}"
    deciding = [one for one in judged if one.outcome is outcome]
    return outcome, "; ".join(f"{one.measure} {one.reason}" for one in deciding)


def _prefix(measures: ParityMeasures, bar: float | None) -> ParityFinding:
    found = measures.prefix_agreement
    said = (
        f"{found:.3f} of the parent's {measures.unit} before the first that differs, "
        f"mean of {measures.prompts} prompts"
    )
    if bar is None:
        return _no_bar("prefix agreement", said)
    outcome = Outcome.PASSED if found >= bar - _ROUNDING else Outcome.FAILED
    reason = f"{said}; want at least {bar:g}"
    return ParityFinding(measure="prefix agreement", outcome=outcome, reason=reason)


def _divergences(measures: ParityMeasures, bars: ParityBars) -> ParityFinding:
    name, bar, n = "real divergences", bars.max_real_divergences, measures.prompts
    said = (
        f"{measures.real} of {n} prompts, {measures.near_ties} more part at near-ties "
        f"(margin up to {bars.near_tie_logprob:g})"
    )
    if measures.unknown:
        said += f", {measures.unknown} cannot be told apart without log probabilities"
    if bar is None:
        return _no_bar(name, said)
    least, most = measures.real / n, (measures.real + measures.unknown) / n
    if most <= bar + _ROUNDING:
        outcome = Outcome.PASSED
    else:
        outcome = Outcome.FAILED if least > bar + _ROUNDING else Outcome.INCONCLUSIVE
    reason = f"{said}; want at most {bar:g} of them"
    return ParityFinding(measure=name, outcome=outcome, reason=reason)


def _at_least(
    name: str, found: float | None, bar: float | None, measures: ParityMeasures
) -> ParityFinding:
    if found is None:
        return _missing(name, bar)
    said = f"{found:.3f} over {_positions(measures)}"
    if measures.real_disagreements:
        said += f", {measures.real_disagreements} of the others beyond a near-tie"
    if bar is None:
        return _no_bar(name, said)
    outcome = Outcome.PASSED if found >= bar - _ROUNDING else Outcome.FAILED
    return ParityFinding(measure=name, outcome=outcome, reason=f"{said}; want at least {bar:g}")


def _kl(measures: ParityMeasures, bar: float | None) -> ParityFinding:
    if measures.kl is None:
        return _missing("KL", bar)
    said = f"{measures.kl:.4f} nats, mean over {_positions(measures)}"
    if bar is None:
        return _no_bar("KL", said)
    outcome = Outcome.PASSED if measures.kl <= bar + _ROUNDING else Outcome.FAILED
    return ParityFinding(measure="KL", outcome=outcome, reason=f"{said}; want at most {bar:g}")


def _tags(tags: Sequence[TagDrop], bar: float | None) -> ParityFinding:
    name = "passed cases"
    if not tags:
        return _missing(name, bar)
    worst = max(tags, key=lambda one: (one.drop, -one.p))
    if bar is None:
        return _no_bar(name, _drop(worst))
    beyond = [one for one in tags if one.drop > bar + _ROUNDING]
    sure = [one for one in beyond if one.p <= SIGNIFICANCE]
    if not beyond:
        outcome, said = Outcome.PASSED, _drop(worst)
    elif sure:
        outcome, said = Outcome.FAILED, "; ".join(map(_drop, sure))
    else:
        outcome = Outcome.INCONCLUSIVE
        said = "; ".join(map(_drop, beyond)) + f": too few to be no chance (p above {SIGNIFICANCE})"
    reason = f"{said}; want a fall of at most {bar:g}"
    return ParityFinding(measure=name, outcome=outcome, reason=reason[:2000])


def _drop(one: TagDrop) -> str:
    name = "all" if one.tag is None else f"tag {one.tag}"
    return (
        f"{one.candidate_passed} of {one.cases} of {name}, the parent {one.parent_passed} "
        f"({one.lost} lost, {one.gained} gained, p {one.p:.3g})"
    )


def _positions(measures: ParityMeasures) -> str:
    forced = f", {measures.forced} of them teacher-forced" if measures.forced else ""
    return f"{measures.positions} positions{forced}"


def _no_bar(name: str, said: str) -> ParityFinding:
    return ParityFinding(measure=name, outcome=Outcome.SKIPPED, reason=f"{said}; no bar")


def _missing(name: str, bar: float | None) -> ParityFinding:
    if bar is None:
        return ParityFinding(measure=name, outcome=Outcome.SKIPPED, reason=_NO_LOGPROBS)
    reason = f"{_NO_LOGPROBS}; bar {bar:g}"
    return ParityFinding(measure=name, outcome=Outcome.INCONCLUSIVE, reason=reason)
