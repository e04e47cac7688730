"""The act of a bisection: checks both ends, tries what lies between, says which input is to blame.

Keeps no state: every engine built and every report made on the way is in the registry, so the same
command, run again after a crash, meets them there and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.bisect.inputs import changes_between, mixed, not_tried
from engine_pipeline.bisect.search import Blame, Verdict, blame
from engine_pipeline.gates.outcome import Outcome
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.bisect.inputs import InputChange
    from engine_pipeline.gates.report import Report
    from engine_pipeline.spec.lock import BuildLock
    from engine_registry.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What good means: the whole gate passed, or one case, or one finding of it.

    Attributes:
        case: id of a golden case.
        bar: name of a finding, as the report shows it, e.g. `score of json`, `ttft_p95_ms`.
    """

    case: str | None = None
    bar: str | None = None

    def __str__(self) -> str:
        if self.case is not None:
            return f"case {self.case}"
        return self.bar if self.bar is not None else "the gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One state between good and bad.

    Attributes:
        changes: names of those in place.
        engine: None if none could be built.
        why: what the gate, or the refusal, said.
    """

    changes: tuple[str, ...]
    verdict: Verdict
    engine: Digest | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What was found.

    Attributes:
        changes: everything that differs, in the order of the search.
        tries: both ends first.
        left_out: differences that are no inputs of the engine.
        fixed: inputs that differ too and that this machine cannot change, such as its driver.
    """

    changes: tuple[InputChange, ...]
    tries: tuple[Try, ...]
    blame: Blame
    left_out: tuple[str, ...]
    fixed: tuple[str, ...] = ()


def bisect(
    good: BuildLock,
    bad: BuildLock,
    criterion: Criterion,
    *,
    judge: Callable[[BuildLock], tuple[Digest, Report]],
    say: Callable[[Try], None] = lambda _: None,
    fixed: tuple[str, ...] = (),
) -> Bisection:
    """Find the input that made good bad.

    Args:
        good: an engine of it meets the criterion.
        bad: an engine of it does not.
        criterion: what is looked at.
        judge: the engine of a lock, built or found, and its report.
        say: told of each try.
        fixed: inputs that differ too and that are the same in everything that is built here.

    Raises:
        InvalidInput: nothing differs, or an end is not what it is said to be.
    """
    changes = changes_between(good, bad)
    if not changes:
        raise _nothing(fixed)
    by_name = {change.name: change for change in changes}
    tries: list[Try] = []

    def attempt(names: tuple[str, ...]) -> Verdict:
        done = _try(good, bad, [by_name[name] for name in names], criterion, judge)
        tries.append(done)
        say(done)
        return done.verdict

    for names, want in (((), Verdict.GOOD), (tuple(by_name), Verdict.BAD)):
        if attempt(names) is not want:
            raise _not_so(tries[-1], want, criterion, fixed)
    return Bisection(
        changes=changes,
        blame=blame(tuple(by_name), attempt),
        tries=tuple(tries),
        left_out=not_tried(good, bad),
        fixed=fixed,
    )


def verdict_of(report: Report, criterion: Criterion) -> tuple[Verdict, str]:
    """What a report says of the criterion; a case or finding that is not in it is unknown."""
    if criterion.case is not None:
        case = next((case for case in report.cases if case.id == criterion.case), None)
        if case is None:
            return Verdict.UNKNOWN, f"the report has no case {criterion.case}"
        return _VERDICTS[case.outcome], f"case {case.id} {case.outcome}"
    if criterion.bar is not None:
        found = next((f for f in report.findings if f.name == criterion.bar), None)
        if found is None:
            names = ", ".join(f.name for f in report.findings)
            return Verdict.UNKNOWN, f"the report has no finding {criterion.bar}; it has {names}"
        return _VERDICTS[found.outcome], f"{found.name} {found.outcome}: {found.reason}"
    broken = [f"{f.name}: {f.reason}" for f in report.findings if f.outcome is Outcome.FAILED]
    return _VERDICTS[report.outcome], "; ".join(broken[:2]) or f"gate {report.outcome}"


_VERDICTS = {
    Outcome.PASSED: Verdict.GOOD,
    Outcome.FAILED: Verdict.BAD,
    Outcome.ERRORED: Verdict.UNKNOWN,
    Outcome.INCONCLUSIVE: Verdict.UNKNOWN,
    Outcome.SKIPPED: Verdict.UNKNOWN,
}


def _try(
    good: BuildLock,
    bad: BuildLock,
    changes: list[InputChange],
    criterion: Criterion,
    judge: Callable[[BuildLock], tuple[Digest, Report]],
) -> Try:
    names = tuple(change.name for change in changes)
    try:
        engine, report = judge(mixed(good, bad, changes))
    except (InvalidInput, Incompatible) as error:
        return Try(changes=names, verdict=Verdict.UNKNOWN, engine=None, why=error.message)
    verdict, why = verdict_of(report, criterion)
    return Try(changes=names, verdict=verdict, engine=engine, why=why)


def _nothing(fixed: tuple[str, ...]) -> InvalidInput:
    if fixed:
        return InvalidInput(
            f"both locks have the same inputs, and what differs cannot be changed here: "
            f"{'; '.join(fixed)}",
            hint="build and gate one spec on a node of either kind: `enginectl build`, then "
            "`enginectl gate`",
            reference="nothing-to-bisect",
        )
    return InvalidInput(
        "both locks have the same inputs: nothing of the engine differs",
        hint="look at the machines and at what serves: `enginectl diff` names what differs",
        reference="nothing-to-bisect",
    )


def _not_so(end: Try, want: Verdict, criterion: Criterion, fixed: tuple[str, ...]) -> InvalidInput:
    name, other = ("GOOD", "BAD") if want is Verdict.GOOD else ("BAD", "GOOD")
    hint = f"name another {name}, or look at something that {name} and {other} differ in with "
    hint += "--case or --bar"
    if fixed:
        hint = f"built here it has this machine's {'; '.join(fixed)}: that may be the cause; {hint}"
    if end.engine is None:
        found = f"{name} could not be built or judged: {end.why}"
    else:
        found = f"{name} is {end.verdict} by {criterion} (engine {end.engine.short}): {end.why}"
    return InvalidInput(
        f"{found}; want {want}",
        hint=hint,
        reference="end-is-not-so",
    )
