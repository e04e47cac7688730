"""Locks that are mixed of two, and the act over them."""

import pytest

from engine_pipeline.bisect.bisect import Criterion, bisect, verdict_of
from engine_pipeline.bisect.inputs import changes_between, host_differences, mixed, not_tried
from engine_pipeline.bisect.search import Alone, Verdict
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, QualityBars
from engine_pipeline.gates.report import Device, Finding, LoadResult, Report
from engine_pipeline.spec.lock import BuildLock, build_key
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, InvalidInput
from engine_registry.testing.samples import SAMPLE_AT

POLICY = GatePolicy(suite="core", quality=QualityBars(min_score=0.9))


def lock(**changed) -> BuildLock:
    """A lock; `changed` says which of the eight inputs is as in the bad one."""
    model = "2" if changed.get("model") else "1"
    return BuildLock.model_validate(
        {
            "spec": {
                "schema_version": 1,
                "model": {"name": "toy", "source": "file:///toy", "revision": model},
                "target": {"sku": "h100-sxm-80gb"},
                "precision": {
                    "weights": "fp8" if changed.get("precision") else "fp16",
                    "kv_cache": "fp8" if changed.get("precision.kv_cache") else "fp16",
                },
                "backend": {
                    "kind": "trtllm-engine",
                    "version": "1.2.1" if changed.get("toolkit") else "1.1.0",
                    "options": {
                        "paged_state": bool(changed.get("backend.options.paged_state")),
                        **({"fresh": 1} if changed.get("backend.options.fresh") else {}),
                    },
                },
                "limits": {
                    "max_batch_size": 8 if changed.get("limits.max_batch_size") else 4,
                    "max_input_tokens": 64,
                    "max_sequence_tokens": 256
                    if changed.get("limits.max_sequence_tokens")
                    else 128,
                    "max_batch_tokens": 512,
                },
                "serving": changed.get("serving", {}),
                "suites": ["core"],
            },
            "source": {
                "source": "file:///toy",
                "revision": model,
                "files": [{"path": "m", "size_bytes": 4, "digest": "sha256:" + model * 64}],
            },
            "tokenizer": {"digest": "sha256:" + model * 64, "chat_template": None},
            "tools": {"trtllm": "1.2.1" if changed.get("toolkit") else "1.1.0"},
        }
    )


EIGHT = (
    "model",
    "toolkit",
    "precision",
    "precision.kv_cache",
    "backend.options.fresh",
    "backend.options.paged_state",
    "limits.max_batch_size",
    "limits.max_sequence_tokens",
)
GOOD = lock()
BAD = lock(**dict.fromkeys(EIGHT, True), serving={"slots": 2})


def report(outcome: Outcome, **parts) -> Report:
    return Report(
        engine=Digest.of(b"engine"),
        gate="core",
        suite_name="core",
        suite=Digest.of(b"suite"),
        policy=POLICY,
        policy_digest=POLICY.digest,
        device=Device(sku="h100-sxm-80gb", host_class="t", cpu_model="t", cores=1),
        started_at=SAMPLE_AT,
        finished_at=SAMPLE_AT,
        outcome=outcome,
        load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
        findings=(Finding(name="score", outcome=outcome, reason="as planted"),),
        **parts,
    )


class Bench:
    """Builds nothing: says which engine a lock gives, and counts the builds."""

    def __init__(self, is_bad) -> None:
        self.built: dict[Digest, BuildLock] = {}
        self._is_bad = is_bad

    def __call__(self, asked: BuildLock):
        key = build_key(asked, {})
        self.built[key] = asked
        return key, report(Outcome.FAILED if self._is_bad(asked) else Outcome.PASSED)


def test_every_input_that_differs_is_one_change_and_serving_is_none():
    assert tuple(change.name for change in changes_between(GOOD, BAD)) == EIGHT
    assert not_tried(GOOD, BAD) == ("serving",)
    assert changes_between(GOOD, GOOD) == ()


@pytest.mark.parametrize("name", EIGHT)
def test_a_mixed_lock_is_the_good_one_with_exactly_that_change(name):
    by_name = {change.name: change for change in changes_between(GOOD, BAD)}
    assert build_key(mixed(GOOD, BAD, [by_name[name]]), {}) == build_key(lock(**{name: True}), {})
    others = [change for other, change in by_name.items() if other != name]
    assert [c.name for c in changes_between(mixed(GOOD, BAD, others), BAD)] == [name]


def test_changes_that_do_not_go_together_are_refused():
    small = lock()
    large = small.model_copy(
        update={
            "spec": small.spec.model_copy(
                update={
                    "limits": small.spec.limits.model_copy(
                        update={"max_input_tokens": 200, "max_sequence_tokens": 512}
                    )
                }
            )
        }
    )
    inputs = [c for c in changes_between(small, large) if c.name == "limits.max_input_tokens"]
    with pytest.raises(Incompatible, match="leaves no room"):
        mixed(small, large, inputs)


@pytest.mark.parametrize("culprit", EIGHT)
def test_a_planted_culprit_among_eight_inputs_is_found_in_at_most_four_builds(culprit):
    culprits = {change.name: change for change in changes_between(GOOD, BAD)}
    planted = mixed(GOOD, BAD, [culprits[culprit]])
    (mark,) = changes_between(GOOD, planted)

    def is_bad(asked: BuildLock) -> bool:
        return all(change.name != culprit for change in changes_between(asked, BAD))

    assert mark.name == culprit
    bench = Bench(is_bad)
    found = bisect(GOOD, BAD, Criterion(), judge=bench)
    assert found.blame.suspects == (culprit,)
    assert found.blame.alone is Alone.YES
    ends = {build_key(GOOD, {}), build_key(BAD, {})}
    assert len(set(bench.built) - ends) <= 4


def test_a_state_that_cannot_be_built_is_no_verdict():
    def judge(asked: BuildLock):
        if asked.spec.backend.version == "1.2.1" and asked.spec.precision.weights == "fp16":
            raise Incompatible("no such pair", hint="none", reference="pair")
        return Bench(lambda one: one.spec.precision.weights == "fp8")(asked)

    found = bisect(GOOD, BAD, Criterion(), judge=judge)
    assert "precision" in found.blame.suspects
    assert any(t.verdict is Verdict.UNKNOWN and t.why == "no such pair" for t in found.tries)


@pytest.mark.parametrize(("is_bad", "end"), [(True, "GOOD is bad"), (False, "BAD is good")])
def test_an_end_that_is_not_so_ends_it_at_once(is_bad, end):
    bench = Bench(lambda _: is_bad)
    with pytest.raises(InvalidInput, match=end):
        bisect(GOOD, BAD, Criterion(), judge=bench)
    assert len(bench.built) <= 2


def test_equal_inputs_leave_nothing_to_bisect():
    with pytest.raises(InvalidInput, match="same inputs"):
        bisect(GOOD, lock(serving={"slots": 2}), Criterion(), judge=Bench(lambda _: True))


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome.PASSED, Verdict.GOOD),
        (Outcome.FAILED, Verdict.BAD),
        (Outcome.ERRORED, Verdict.UNKNOWN),
        (Outcome.INCONCLUSIVE, Verdict.UNKNOWN),
    ],
)
def test_only_what_was_judged_is_good_or_bad(outcome, verdict):
    assert verdict_of(report(outcome), Criterion())[0] is verdict
    assert verdict_of(report(outcome), Criterion(bar="score"))[0] is verdict


def test_a_case_or_bar_that_is_not_in_the_report_is_no_verdict():
    assert verdict_of(report(Outcome.PASSED), Criterion(case="absent"))[0] is Verdict.UNKNOWN
    assert verdict_of(report(Outcome.PASSED), Criterion(bar="absent"))[0] is Verdict.UNKNOWN


def test_a_driver_that_differs_is_named_with_what_is_here_and_that_it_was_not_tried():
    drivers = ({"driver": "570.1"}, {"driver": "590.2"})
    said = host_differences(*drivers, {"driver": "590.2"})
    assert said == ("driver 570.1 → 590.2 (here 590.2)",)
    assert host_differences(drivers[0], drivers[0], {}) == ()
    bad = lock(precision=True)
    bench = Bench(lambda asked: asked.spec.precision.weights == "fp8")
    found = bisect(GOOD, bad, Criterion(), judge=bench, fixed=said)
    assert found.fixed == said
    assert found.blame.suspects == ("precision",)


def test_where_only_the_driver_differs_the_refusal_says_so():
    with pytest.raises(InvalidInput, match="cannot be changed here: driver 570") as raised:
        bisect(GOOD, GOOD, Criterion(), judge=Bench(lambda _: True), fixed=("driver 570 → 590",))
    assert raised.value.name == "nothing-to-bisect"


def test_an_end_that_is_not_so_once_built_here_may_be_due_to_what_is_fixed_here():
    with pytest.raises(InvalidInput) as raised:
        bisect(GOOD, BAD, Criterion(), judge=Bench(lambda _: False), fixed=("driver 1 → 2",))
    assert "built here it has this machine's driver 1 → 2" in raised.value.hint
