"""What a reader must know before believing the numbers: said when it is so, and only then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine_pipeline.bakeoff.caveats import caveats
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.gates.outcome import Outcome
from tests.bakeoff_world import AT, HERE, OVERHEAD, file, lane, measured, performance


def told(**found: Measured) -> str:
    return " ".join(caveats(file(), found, {}))


def ours(**changes) -> Measured:
    return measured(device=HERE, identity={"verified": True}, **changes)


def test_two_engines_on_one_quiet_machine_need_no_word():
    assert told(one=ours(foreign_cpu=0.02), two=ours(foreign_cpu=0.05)) == ""


CASES = [
    ({"foreign_cpu": 0.4}, "while two was measured, others used 40% of this machine"),
    ({"started_at": AT - timedelta(hours=9)}, "the first measurement is 9 h older"),
    ({"overhead": OVERHEAD.model_copy(update={"ttft_p95_ms": 6.0})}, "may add 6 ms of two's TTFT"),
    ({"identity": {"verified": True, "model_revision": "r2"}}, "not the same model revision"),
    ({"identity": {"verified": True, "chat_template": "t2"}}, "not the same chat template"),
    ({"identity": {"verified": False}}, "two are what the file states"),
    ({"device": None}, "two ran on a machine that is not known"),
    ({"device": HERE.model_copy(update={"host_class": "big"})}, "one class of host: big, test"),
    (
        {"steps": (performance().model_copy(update={"ignores_eos": False}),)},
        "answers of two end where the model ends them",
    ),
    (
        {"lanes": (lane().model_copy(update={"ignores_eos": False}),)},
        "answers of two end where the model ends them",
    ),
    (
        {"lanes": (lane().model_copy(update={"lengths_known": False}),)},
        "two counts no tokens",
    ),
    (
        {"steps": (performance().model_copy(update={"cached_share": 0.5}),)},
        "two took prompt tokens from a cache",
    ),
    (
        {"steps": (performance().model_copy(update={"unreached": 1}),)},
        "some requests never reached two",
    ),
]


@pytest.mark.parametrize(
    ("changes", "said"), CASES, ids=[f"{said} {next(iter(changes))}" for changes, said in CASES]
)
def test_what_would_mislead_is_said_of_whom_it_concerns(changes, said):
    other = measured(**({"device": HERE, "identity": {"verified": True}} | changes))
    text = told(one=ours(), two=other)
    assert said in text
    # One thing is wrong, and one sentence says so.
    assert len(caveats(file(), {"one": ours(), "two": other}, {})) == 1


def test_a_cache_that_helped_everybody_alike_is_not_told_of():
    helped = {"steps": (performance().model_copy(update={"cached_share": 0.2}),)}
    alike = {"device": HERE, "identity": {"verified": True}} | helped
    assert not caveats(file(), {"one": measured(**alike), "two": measured(**alike)}, {})


def test_few_requests_are_told_where_a_limit_on_p95_depends_on_them():
    few = {"requests": 20, "concurrency": [1], "output_tokens": 8}
    found = {"one": ours(), "two": ours()}
    assert not caveats(file(load=few), found, {})
    [said] = caveats(file(load=few, limits={"max_ttft_p95_ms": 50}), found, {})
    assert said.startswith("20 requests at a step give p95 no upper bound, 59 do")


@pytest.mark.parametrize(("outcome", "count"), [(Outcome.ERRORED, 1), (Outcome.FAILED, 0)])
def test_who_could_not_be_judged_may_be_better_and_who_failed_may_not(outcome, count):
    gone = {"two": Unmeasured(outcome=outcome, why="x")}
    said = caveats(file(), {"one": ours()}, gone)
    assert [text.startswith("two may be better") for text in said] == [True] * count
