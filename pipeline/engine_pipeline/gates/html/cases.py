"""Golden prompts: what was asked, what live and candidate answered, and which words differ.

A report keeps no tokens of these answers. Where it was compared with a parent token by token, the
case says where those answers parted. Failing cases come first and stand open; the others are
folded. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.differences import Live, case_of
from engine_pipeline.gates.html.text import cut, shown, verdict
from engine_pipeline.gates.markdown_parity import divergence_tokens
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.word_diff import Piece, word_diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.gates.differences import Beside
    from engine_pipeline.gates.report import Attempt, CaseResult, Report

_SHOWN_CHARS = 4000
_REASON_CHARS = 600
# A suite may have thousands of cases; a page has to open on a phone.
_SHOWN_CASES = 150
_LEAST_ALIKE = 0.15


def golden_prompts(report: Report, beside: Beside) -> str:
    """Three groups: did not pass, passed with another answer than live's, passed."""
    if not report.cases:
        return '<p class="none">No golden prompt was asked.</p>'
    failing = [case for case in report.cases if case.outcome is not Outcome.PASSED]
    failing.sort(key=lambda case: (case.outcome is not Outcome.FAILED, not case.must))
    passed = [case for case in report.cases if case.outcome is Outcome.PASSED]
    changed = [case for case in passed if _differs(case, beside)]
    ids = {case.id for case in changed}
    same = [case for case in passed if case.id not in ids]
    total = len(report.cases)
    marked = " Against live’s answers, the words that differ are marked."
    told = marked if isinstance(beside, Live) else ""
    parts = [f"<p>{len(passed)} of {total} cases passed.{told}</p>"]
    if failing:
        parts.append(f"<h3>Did not pass ({len(failing)})</h3>")
        parts += _cards(failing, beside, report)
    if changed:
        inner = "".join(_cards(changed, beside, report))
        parts.append(
            f"<details><summary>Passed, with another answer than live’s ({len(changed)})"
            f"</summary>{inner}</details>"
        )
    if same:
        what = "Passed, with live’s very answer" if isinstance(beside, Live) else "Passed"
        inner = "".join(_cards(same, beside, report))
        parts.append(f"<details><summary>{what} ({len(same)})</summary>{inner}</details>")
    return "".join(parts)


def _differs(case: CaseResult, beside: Beside) -> bool:
    theirs = case_of(beside, case.id)
    return theirs is not None and theirs.attempts[0].said != case.attempts[0].said


def _cards(cases: Sequence[CaseResult], beside: Beside, report: Report) -> Iterable[str]:
    yield from (
        _card(case, case_of(beside, case.id), _parted(case, report))
        for case in cases[:_SHOWN_CASES]
    )
    if left := cases[_SHOWN_CASES:]:
        names = ", ".join(case.id for case in left)
        yield f'<p class="none">And {len(left)} more, see report.json: {shown(names)}</p>'


def _parted(case: CaseResult, report: Report) -> str:
    """Where the greedy answers part from each parent's, token by token."""
    told = [
        f"At temperature 0, against {result.parent.named}: {divergence_tokens(one, unit)}."
        for result in report.parity
        if result.measures is not None
        for unit in [result.measures.unit]
        for one in result.divergences
        if one.case == case.id
    ]
    items = "".join(f"<li>{shown(line)}</li>" for line in told)
    return f'<ul class="reasons">{items}</ul>' if items else ""


def _card(case: CaseResult, theirs: CaseResult | None, parted: str) -> str:
    number, mine = _telling(case)
    outcomes = [attempt.outcome for attempt in case.attempts]
    times = len(outcomes)
    repeats = f"<span>passed {outcomes.count(Outcome.PASSED)} of {times} times</span>"
    marks = [verdict(case.outcome), *(['<span class="must">must pass</span>'] * case.must)]
    marks += [repeats] if times > 1 else []
    if not case.counts and case.quarantine is not None:
        held = f"in quarantine until {case.quarantine.until}: does not count"
        marks.append(f"<span>{shown(held)}</span>")
    marks += [f'<span class="tag">{shown(tag)}</span>' for tag in case.tags]
    asked = f'<p class="asked" dir="auto">{shown(case.asked)}</p>' if case.asked else ""
    return (
        f'<article class="case {case.outcome}"><h4>{shown(case.id)}</h4>'
        f'<p class="marks">{" ".join(marks)}</p>{asked}{_reasons(mine)}'
        f"{_answers(mine, _same_attempt(theirs, number))}{parted}</article>"
    )


def _telling(case: CaseResult) -> tuple[int, Attempt]:
    """The attempt that decided: the first that failed, else that could not be judged, else one."""
    for wanted in (Outcome.FAILED, Outcome.ERRORED):
        for number, attempt in enumerate(case.attempts):
            if attempt.outcome is wanted:
                return number, attempt
    return 0, case.attempts[0]


def _same_attempt(theirs: CaseResult | None, number: int) -> Attempt | None:
    """Of the same seed, where there is one."""
    if theirs is None:
        return None
    return theirs.attempts[min(number, len(theirs.attempts) - 1)]


def _reasons(attempt: Attempt) -> str:
    # How near an answer came is told of those that passed too: bars are taken from that.
    told = (v for v in attempt.checks if not v.passed or v.similarity is not None)
    reasons = [f"{v.kind}: {v.reason}" for v in told]
    if attempt.error is not None:
        reasons.insert(0, attempt.error)
    items = "".join(f"<li>{shown(cut(reason, _REASON_CHARS))}</li>" for reason in reasons)
    return f'<ul class="reasons">{items}</ul>' if items else ""


def _answers(mine: Attempt, theirs: Attempt | None) -> str:
    after = cut(mine.said, _SHOWN_CHARS)
    if theirs is None:
        return f'<div class="answers">{_answer("Candidate", shown(after), mine)}</div>'
    before = cut(theirs.said, _SHOWN_CHARS)
    if before == after:
        both = _answer("Live and candidate answer alike", shown(after), mine)
        return f'<div class="answers">{both}</div>'
    pieces = _worth_marking(word_diff(before, after))
    old = "".join(shown(p.before) if p.same else _marked("del", p.before) for p in pieces)
    new = "".join(shown(p.after) if p.same else _marked("ins", p.after) for p in pieces)
    return (
        f'<div class="answers two">{_answer("Live", old, theirs)}'
        f"{_answer('Candidate', new, mine)}</div>"
    )


def _worth_marking(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Two texts with hardly a word in common are set side by side as they are."""
    alike = sum(len(piece.before.strip()) for piece in pieces if piece.same)
    whole = sum(max(len(piece.before), len(piece.after)) for piece in pieces)
    if alike >= whole * _LEAST_ALIKE:
        return pieces
    return [Piece(True, piece.before, piece.after) for piece in pieces]


def _marked(tag: str, text: str) -> str:
    return f"<{tag}>{shown(text)}</{tag}>" if text else ""


def _answer(who: str, content: str, attempt: Attempt) -> str:
    notes = []
    if attempt.text_chars > len(attempt.text):
        notes.append(f"the first {len(attempt.text):,} of {attempt.text_chars:,} characters")
    if attempt.finish_reason not in {None, "stop"}:
        notes.append(f"ended by {attempt.finish_reason}")
    small = f"<small>{shown(', '.join(notes))}</small>" if notes else ""
    text = content or '<span class="none">(empty)</span>'
    return f'<div><h5>{who}{small}</h5><pre dir="auto" tabindex="0">{text}</pre></div>'
