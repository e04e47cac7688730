"""A lane's numbers and verdicts, from requests whose times are known."""

from __future__ import annotations

from typing import Any

import pytest

from engine_pipeline.gates.differences import NoLive
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.lane_bars import LaneBars
from engine_pipeline.gates.lane_judge import judge_lane
from engine_pipeline.gates.lane_metrics import Sent, judged_by, summarise_step, undisturbed
from engine_pipeline.gates.lane_result import LaneResult, LaneStep
from engine_pipeline.gates.lane_words import lane_facts, metric_of, step_facts, step_rows
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.gates.reply import ErrorKind, Reply, RequestError
from engine_pipeline.nvml.use import Reading, use_of
from engine_pipeline.tracking.mlflow.gate_metrics import gate_metrics
from engine_pipeline.workload.requests import Planned
from tests.unit.gates.report_samples import report

WORKLOAD = {
    "name": "w",
    "prompt_tokens": {"kind": "fixed", "tokens": 20},
    "output_tokens": {"kind": "fixed", "tokens": 3},
    "arrival": {"kind": "poisson", "rate_per_s": 10},
    "requests": 100,
}
NOBODY = NoLive(reason="nothing was live on m/t/prod")
SLO = {"max_ttft_ms": 150, "max_tpot_ms": 20}


def bars(**changes: Any) -> LaneBars:
    wanted = {"ceilings": {"ttft_p95_ms": 200}, **changes}
    return LaneBars.model_validate({"workload": WORKLOAD, **wanted})


def sent(
    number: int = 0,
    *,
    lag_s: float = 0.0,
    connect_s: float = 0.0,
    ttft_s: float = 0.1,
    gap_s: float = 0.01,
    error: RequestError | None = None,
    due: bool = True,
    **changes: Any,
) -> Sent:
    """A request that is due every 100 ms and answered with three tokens."""
    due_at = 1000 + number * 0.1
    began_at = due_at + lag_s
    sent_at = began_at + connect_s
    first = sent_at + ttft_s
    reply = Reply(
        text="x",
        finish_reason="length",
        prompt_tokens=20,
        completion_tokens=changes.get("tokens", 3),
        cached_tokens=5,
        sent_at=sent_at,
        event_at=(first, first + gap_s, first + 2 * gap_s) if error is None else (),
        ended_at=first + 2 * gap_s,
        error=error,
    )
    planned = Planned(index=number, at_s=0.1 * number, prompt_tokens=20, output_tokens=3)
    return Sent(planned=planned, due_at=due_at if due else None, began_at=began_at, reply=reply)


def step(requests: list[Sent], *, in_flight: int | None = None, **changes: Any) -> LaneStep:
    return summarise_step(
        requests, bars(**changes), in_flight=in_flight, most_in_flight=3, ignores_eos=True
    )


def lane(*steps: LaneStep, **changes: Any) -> LaneResult:
    return LaneResult.model_validate(
        {
            "name": "interactive",
            "workload": WORKLOAD,
            "digest": "sha256:" + "a" * 64,
            "ignores_eos": True,
            "lengths_known": True,
            "steps": steps,
            **changes,
        }
    )


def verdicts(result: LaneResult, **wanted: Any) -> dict[str, Outcome]:
    return {one.name: one.outcome for one in judge_lane(result, bars(**wanted))}


def test_times_count_from_when_a_request_was_due():
    found = step([sent(n, lag_s=0.015, connect_s=0.02) for n in range(60)])
    assert found.metrics["ttft_p50_ms"].value == pytest.approx(135)
    assert found.metrics["e2e_p50_ms"].value == pytest.approx(155)
    assert found.metrics["tpot_p50_ms"].value == pytest.approx(10)


def test_in_a_closed_loop_times_count_from_when_it_was_sent():
    found = step([sent(n, connect_s=0.02, due=False) for n in range(60)], in_flight=1)
    assert found.metrics["ttft_p50_ms"].value == pytest.approx(100)
    assert (found.late_share, found.lag_p99_ms, found.offered_per_s) == (None, None, None)


def test_all_four_percentiles_of_all_four_times_have_bounds():
    found = step([sent(n) for n in range(60)])
    assert {f"{s}_p{q}_ms" for s in ("ttft", "tpot", "itl", "e2e") for q in (50, 90, 95, 99)} <= (
        set(found.metrics)
    )
    assert found.metrics["ttft_p95_ms"].high is not None
    # 60 requests bound no p99, however many gaps they have.
    assert found.metrics["ttft_p99_ms"].high is None
    assert found.metrics["itl_p99_ms"].high is None
    assert found.metrics["itl_p50_ms"].n == 60


@pytest.mark.parametrize("in_flight", [None, 2])
def test_other_bars_make_of_a_stored_step_what_they_would_have_measured(in_flight):
    requests = [
        sent(n, ttft_s=0.2 if n % 3 else 0.1, lag_s=0.004, due=in_flight is None) for n in range(60)
    ]
    before = {"slo": SLO, "min_good_share": 0.5}
    after = {"slo": {"max_ttft_ms": 250}, "min_good_per_s": 1, "max_client_lag_ms": 3}
    stored = LaneStep.model_validate_json(
        step(requests, in_flight=in_flight, **before).model_dump_json()
    )
    found = judged_by(stored, bars(**after))
    want = step(requests, in_flight=in_flight, **after)
    assert found.late_share == want.late_share == (1.0 if in_flight is None else None)
    assert found.metrics["good_share"] == want.metrics["good_share"]
    assert stored.metrics["good_share"].value != found.metrics["good_share"].value
    assert found.metrics["good_per_s"].value == pytest.approx(
        want.metrics["good_per_s"].value, rel=1e-3
    )
    assert "good_share" not in judged_by(stored, bars()).metrics


def test_goodput_is_the_share_that_met_every_part_of_the_slo():
    requests = [
        *(sent(n) for n in range(80)),
        *(sent(n, ttft_s=0.2) for n in range(80, 90)),
        *(sent(n, gap_s=0.03) for n in range(90, 95)),
        *(sent(n, error=RequestError(kind=ErrorKind.TIMEOUT, detail="x")) for n in range(95, 100)),
    ]
    found = step(requests, slo=SLO, min_good_share=0.7)
    share = found.metrics["good_share"]
    assert share.value == 0.8
    assert share.low is not None
    assert share.high is not None
    # Clopper and Pearson's, of 80 of 100 at 95 % on either side.
    assert (share.low, share.high) == pytest.approx((0.723, 0.863), abs=0.002)
    assert found.metrics["good_per_s"].value == pytest.approx(80 / 9.9, rel=0.02)


def test_failed_requests_are_counted_by_kind_and_stand_above_every_time():
    broken = RequestError(kind=ErrorKind.HTTP, status=500, detail="x")
    requests = [sent(n) for n in range(90)]
    requests += [sent(n, error=broken) for n in range(90, 98)]
    requests += [Sent(planned=requests[0].planned, due_at=1009.9, began_at=1009.9, reply=None)]
    requests += [sent(99, tokens=2)]
    found = step(requests)
    assert found.failed == {"http-500": 8, "not-sent": 1, "wrong-length": 1}
    assert found.metrics["ttft_p95_ms"].value is None
    assert found.metrics["ttft_p90_ms"].value == pytest.approx(100)


def test_a_client_that_was_late_too_often_decides_nothing_even_where_the_bar_is_missed():
    requests = [sent(n, lag_s=0.5 if n % 20 == 0 else 0.0, ttft_s=0.5) for n in range(100)]
    found = step(requests)
    assert found.late_share == 0.05
    [finding] = judge_lane(lane(found), bars())
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.name == "interactive: client"
    assert "could not keep up" in finding.reason
    assert "5.0% of the requests more than 20 ms" in finding.reason
    assert verdicts(lane(found), max_late_share=0.06) == {
        "interactive: ttft_p95_ms": Outcome.FAILED
    }


def test_a_bar_is_met_missed_or_open_by_its_bounds():
    fast = lane(step([sent(n) for n in range(60)]))
    assert verdicts(fast) == {"interactive: ttft_p95_ms": Outcome.PASSED}
    assert verdicts(fast, ceilings={"ttft_p95_ms": 90}) == {
        "interactive: ttft_p95_ms": Outcome.FAILED
    }
    assert verdicts(fast, ceilings={"ttft_p99_ms": 120}) == {
        "interactive: ttft_p99_ms": Outcome.INCONCLUSIVE
    }


def test_goodput_has_a_bar_of_its_own():
    found = step(
        [sent(n, ttft_s=0.2 if n < 10 else 0.1) for n in range(100)], slo=SLO, min_good_share=0.5
    )
    result = lane(found)
    for least, outcome in ((0.8, "passed"), (0.9, "inconclusive"), (0.97, "failed")):
        wanted = {"ceilings": {}, "slo": SLO, "min_good_share": least}
        assert verdicts(result, **wanted) == {"interactive: good_share": Outcome(outcome)}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            {"ceilings": {"ttft_p99_ms": 120}},
            "at least 239 more requests would settle it, if they are like these",
        ),
        (
            {"ceilings": {}, "slo": SLO, "min_good_share": 0.8},
            "about 481 more requests would settle it, if they are like these",
        ),
        (
            {"ceilings": {}, "slo": SLO, "min_good_share": 50 / 60},
            "not even 100,000 more requests are sure to settle it",
        ),
    ],
)
def test_an_open_bar_of_a_lane_says_how_many_more_requests_would_settle_it(wanted, said):
    requests = [sent(n, ttft_s=0.2 if n < 10 else 0.1) for n in range(60)]
    if "slo" not in wanted:
        requests = [sent(n) for n in range(60)]
    found = step(requests, **{name: value for name, value in wanted.items() if name != "ceilings"})
    [finding] = judge_lane(lane(found), bars(**wanted))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.reason.endswith(f"; {said}")


def test_a_bar_missed_by_less_than_the_client_adds_is_not_missed_for_sure():
    client = ClientOverhead(in_flight=3, requests=20, ttft_p50_ms=1, ttft_p95_ms=6, tpot_p50_ms=0.1)
    found = step([sent(n) for n in range(60)])
    wanted = {"ceilings": {"ttft_p95_ms": 95}}
    assert verdicts(lane(found), **wanted) == {"interactive: ttft_p95_ms": Outcome.FAILED}
    [finding] = judge_lane(lane(found, client=client), bars(**wanted))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "less than the client itself may add (6 ms)" in finding.reason


def test_requests_that_never_reached_the_engine_are_no_verdict_on_it():
    lost = RequestError(kind=ErrorKind.CONNECT, detail="x")
    found = step([*(sent(n) for n in range(59)), sent(59, error=lost)])
    assert verdicts(lane(found)) == {"interactive: ttft_p95_ms": Outcome.ERRORED}


def test_without_usage_a_bar_on_time_per_token_is_not_met_by_silence():
    found = step([sent(n, tokens=None) for n in range(60)])
    assert found.failed == {"wrong-length": 60}
    quiet = summarise_step(
        [sent(n, tokens=None) for n in range(60)],
        bars(),
        in_flight=None,
        most_in_flight=1,
        ignores_eos=False,
    )
    assert verdicts(lane(quiet), ceilings={"tpot_p95_ms": 50}) == {
        "interactive: tpot_p95_ms": Outcome.ERRORED
    }


def test_bars_hold_at_every_step_and_findings_say_which():
    slow = [sent(n, ttft_s=0.5, due=False) for n in range(60)]
    steps = (
        step([sent(n, due=False) for n in range(60)], in_flight=1),
        step(slow, in_flight=8),
    )
    result = lane(*steps)
    assert verdicts(result) == {
        "interactive at 1: ttft_p95_ms": Outcome.PASSED,
        "interactive at 8: ttft_p95_ms": Outcome.FAILED,
    }
    found = metric_of((result,), "interactive at 8: ttft_p95_ms")
    assert found is not None
    assert found[1].value == pytest.approx(500)
    assert metric_of((result,), "interactive at 9: ttft_p95_ms") is None


def test_a_lane_that_was_cut_off_is_not_judged():
    result = lane(step([sent()]), trouble="the server exited with code 70")
    assert verdicts(result) == {"interactive": Outcome.SKIPPED}


def test_a_report_says_what_there_is_to_say():
    found = step([sent(n) for n in range(60)], slo=SLO, min_good_share=0.5)
    said = " ".join([*lane_facts(lane(found)), *step_facts(found)])
    assert "Arrival: 10 requests/s, Poisson." in said
    assert "Goodput: 100.0% (95.1% to 100.0%) of the requests were good" in said
    assert "began with 0.0% of them late" in said
    assert "Queue time: the server does not tell it." in said
    assert "25% of those in from the prompt cache" in said
    assert [row[0] for row in step_rows(found)] == [
        "Time to first token, ms",
        "Time per further token, ms",
        "Gap between tokens, ms",
        "Whole answer, ms",
    ]


def test_a_lane_is_on_the_page_with_its_numbers_and_its_bar():
    result = lane(step([sent(n) for n in range(60)], slo=SLO, min_good_share=0.5))
    page = to_html(report(*judge_lane(result, bars()), lanes=(result,)), NOBODY)
    assert "Lane interactive" in page
    assert "Time to first token, p95, interactive" in page
    assert "60 requests as they came" in page


def test_requests_during_which_a_board_was_slowed_down_do_not_count():
    requests = [sent(n, ttft_s=0.1 if n < 60 else 0.9) for n in range(100)]
    spans = [(1000 + 6.0, 1000 + 99.0)]
    kept = undisturbed(requests, spans)
    assert 55 <= len(kept) <= 60
    found = step(kept)
    assert found.metrics["ttft_p99_ms"].value == pytest.approx(100)


def test_a_lane_of_which_too_little_counts_decides_nothing():
    hot = step([sent(n) for n in range(60)])
    enough = hot.model_copy(update={"disturbed": 30})
    assert verdicts(lane(enough)) == {"interactive: ttft_p95_ms": Outcome.PASSED}
    [finding] = judge_lane(lane(hot.model_copy(update={"disturbed": 60})), bars())
    assert (finding.name, finding.outcome) == ("interactive: GPU", Outcome.INCONCLUSIVE)
    assert "60 requests do not count" in finding.reason


def test_the_mirror_has_every_metric_of_every_step():
    steps = [step([sent(n, due=False) for n in range(60)], in_flight=n) for n in (1, 4)]
    mirrored = gate_metrics(report(lanes=(lane(*steps),)))
    assert mirrored["lane.interactive.at_4.ttft_p95_ms"] == pytest.approx(100)
    assert "lane.interactive.at_1.output_tokens_per_s" in mirrored


def test_every_face_of_a_report_tells_how_the_boards_did():
    found = [
        Reading(at=n / 5, uuid="GPU-a", name="NVIDIA H100", sm_clock_mhz=1980, busy_percent=90)
        for n in range(5)
    ]
    boards = use_of(found, 0.0, 1.0)
    result = lane(step([sent(n) for n in range(60)]).model_copy(update={"gpus": boards}))
    told = report(lanes=(result,), performance=None)
    for face in (to_html(told, NOBODY), to_markdown(told)):
        assert "GPU NVIDIA H100: SM clock 1980 MHz" in face
        assert "Throughput per GPU at work: " in face
