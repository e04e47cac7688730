"""The whole gate against real server processes and a registry on disk: every way it can end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.gates import report as reports
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Report
from engine_pipeline.gates.run import attach, run_gate
from engine_pipeline.progress import Silent
from engine_pipeline.promote.evidence import read_report
from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError, InvalidInput, NotFound
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import sample_engine
from tests.chat_world import SUITE, ChatBackend, engine_of, registry_at

PATIENCE_S = 20.0
DEVICE = Device(
    sku="cpu-x86-64-v3", host_class="test host", cpu_model="test", cores=2, runtime={"chat": "1"}
)


def policy(**changes: Any) -> GatePolicy:
    return GatePolicy.model_validate(
        {
            "suite": SUITE.name,
            "load_timeout_s": PATIENCE_S,
            "timeout_s": PATIENCE_S,
            "quality": {"min_score": 0.9},
            **changes,
        }
    )


# What is looked at first, of an engine whose server gives no log probabilities.
GATE_ZERO = {
    "load": Outcome.PASSED,
    "finite log probabilities": Outcome.SKIPPED,
    "degenerate answers": Outcome.PASSED,
}
SPEED = {"requests": 60, "concurrency": 2, "output_tokens": 8, "max_ttft_p95_ms": 5000}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return registry_at(tmp_path)


def judge(registry: Registry, engine, tmp_path: Path, **changes: Any):
    wanted = changes.pop("policy", policy())
    return run_gate(
        registry=registry,
        engine=engine,
        gate="smoke",
        policy=wanted,
        suite=changes.pop("suite", SUITE),
        backend=ChatBackend(),
        runtime_config={"options": changes.pop("options", ())},
        device=DEVICE,
        progress=Silent(),
        clock=registry.clock,
        workdir=tmp_path / "work",
        **changes,
    )


def outcomes(report: Report) -> dict[str, Outcome]:
    return {finding.name: finding.outcome for finding in report.findings}


def attached(registry: Registry, engine) -> int:
    return len(registry.engines.referrers(engine, REPORT_ARTIFACT))


def test_a_good_engine_passes_and_the_report_is_attached_to_it(registry, tmp_path):
    engine = engine_of(registry)
    report, referrer = judge(registry, engine, tmp_path, policy=policy(performance=SPEED))
    assert outcomes(report) == {
        **GATE_ZERO,
        "score": Outcome.PASSED,
        "ttft_p95_ms": Outcome.PASSED,
    }
    assert report.outcome is Outcome.PASSED
    assert [case.attempts[0].text for case in report.cases] == ["It is Paris.", "4"]
    assert report.performance is not None
    assert (report.performance.requests, report.performance.failed) == (60, {})
    client = report.performance.client
    assert client is not None
    assert (client.in_flight, client.ttft_p95_ms > 0) == (2, True)
    [link] = registry.engines.referrers(engine, REPORT_ARTIFACT)
    assert link.manifest == referrer
    assert link.annotations == reports.listing(report)
    files = registry.engines.read_attachment(referrer)
    assert files["report.json"] == canonical_json(report)
    assert files["report.md"].decode() == to_markdown(report)
    assert read_report(registry, engine, referrer) == report
    assert list((tmp_path / "work").iterdir()) == []


LANE: dict[str, Any] = {
    "workload": {
        "name": "chat",
        "prompt_tokens": {"kind": "uniform", "low": 20, "high": 60},
        "output_tokens": {"kind": "fixed", "tokens": 4},
        "arrival": {"kind": "poisson", "rate_per_s": 200},
        "requests": 60,
    },
    "ceilings": {"ttft_p95_ms": 5000},
    "max_client_lag_ms": 5000,
}
BATCH: dict[str, Any] = {
    **LANE,
    "workload": {**LANE["workload"], "arrival": {"kind": "concurrency", "steps": [4]}},
    "ceilings": {"ttft_p95_ms": 150},
}


def test_each_lane_is_measured_under_its_own_load_and_held_to_its_own_bars(registry, tmp_path):
    engine = engine_of(registry, ttft_s=0.4)
    wanted = policy(lanes={"interactive": LANE, "batch": BATCH})
    report, referrer = judge(registry, engine, tmp_path, policy=wanted)
    assert outcomes(report) == {
        **GATE_ZERO,
        "score": Outcome.PASSED,
        "interactive: ttft_p95_ms": Outcome.PASSED,
        "batch: ttft_p95_ms": Outcome.FAILED,
    }
    assert report.outcome is Outcome.FAILED
    for lane in report.lanes:
        assert lane.client is not None
        assert lane.steps[0].failed == {}
    said = to_markdown(report)
    assert "## Lane interactive" in said
    assert "The client itself adds at most" in said
    assert "200 requests/s, Poisson" in said
    assert read_report(registry, engine, referrer) == report


def test_a_lane_whose_client_could_not_keep_up_promotes_nothing(registry, tmp_path):
    engine = engine_of(registry)
    late = {**LANE, "max_client_lag_ms": 0.000001}
    report, _ = judge(registry, engine, tmp_path, policy=policy(lanes={"interactive": late}))
    assert report.outcome is Outcome.INCONCLUSIVE
    assert "the client could not keep up" in report.reasons[0]


def test_a_bad_answer_fails_the_gate(registry, tmp_path):
    engine = engine_of(registry, answers={"Capital of France?": "Rome"}, answer="5")
    report, _ = judge(registry, engine, tmp_path)
    assert report.outcome is Outcome.FAILED
    assert outcomes(report) == {
        **GATE_ZERO,
        "score": Outcome.FAILED,
        "performance": Outcome.SKIPPED,
    }
    assert report.reasons == ("score: 0.000, want at least 0.900 (0 of 2 cases passed)",)


def test_one_answer_that_loops_fails_the_gate_although_the_score_is_met(registry, tmp_path):
    looping = "4 " + "again " * 14
    engine = engine_of(registry, answers={"Capital of France?": "It is Paris.", "2 + 2?": looping})
    half = policy(quality={"min_score": 0.5})
    report, _ = judge(registry, engine, tmp_path, policy=half)
    found = outcomes(report)
    assert (report.outcome, found["score"]) == (Outcome.FAILED, Outcome.PASSED)
    assert found["degenerate answers"] is Outcome.FAILED
    assert report.reasons[0].startswith("degenerate answers: 1 of 2, want none: sum: loop: 'again'")


def test_log_probabilities_that_are_no_numbers_fail_the_gate_although_the_words_are_right(
    registry, tmp_path
):
    engine = engine_of(registry, logprob="NaN")
    report, _ = judge(registry, engine, tmp_path)
    assert outcomes(report)["score"] is Outcome.PASSED
    assert outcomes(report)["finite log probabilities"] is Outcome.FAILED
    assert report.outcome is Outcome.FAILED
    sound, _ = judge(registry, engine_of(registry, logprob="-0.5"), tmp_path)
    assert outcomes(sound)["finite log probabilities"] is Outcome.PASSED


def test_a_gate_asks_its_suite_again_under_load_where_the_policy_says_so(registry, tmp_path):
    engine = engine_of(registry, ttft_s=0.02)
    busy = policy(under_load={"concurrency": 3, "min_agreement": 1.0})
    report, referrer = judge(registry, engine, tmp_path, policy=busy)
    assert outcomes(report) == {
        **GATE_ZERO,
        "score": Outcome.PASSED,
        "score under load": Outcome.PASSED,
        "same answers under load": Outcome.PASSED,
        "performance": Outcome.SKIPPED,
    }
    assert report.under_load is not None
    assert (report.under_load.most_in_flight, report.under_load.compared) == (3, 2)
    assert "## Under load" in to_markdown(report)
    assert read_report(registry, engine, referrer) == report


def test_an_engine_that_is_too_slow_fails_although_it_answers_well(registry, tmp_path):
    engine = engine_of(registry, ttft_s=0.05)
    slow = policy(performance={**SPEED, "concurrency": 10, "max_ttft_p95_ms": 5})
    report, _ = judge(registry, engine, tmp_path, policy=slow)
    assert outcomes(report)["score"] is Outcome.PASSED
    assert report.outcome is Outcome.FAILED


def test_too_few_requests_are_inconclusive_and_the_report_says_how_many_it_takes(
    registry, tmp_path
):
    few = policy(performance={**SPEED, "requests": 5})
    report, _ = judge(registry, engine_of(registry), tmp_path, policy=few)
    assert report.outcome is Outcome.INCONCLUSIVE
    assert "5 samples give no upper bound (59 do)" in report.reasons[0]


def test_an_engine_that_does_not_load_fails_at_gate_zero_and_nothing_is_asked(registry, tmp_path):
    report, _ = judge(registry, engine_of(registry), tmp_path, options=("--exit-at-load", "1"))
    assert outcomes(report) == {
        "load": Outcome.FAILED,
        "quality": Outcome.SKIPPED,
        "performance": Outcome.SKIPPED,
    }
    assert report.outcome is Outcome.FAILED
    assert report.load.log == ("loading", "error: wrong tensor shape")
    assert report.cases == ()


def test_an_engine_whose_files_cannot_be_read_fails_at_gate_zero(registry, tmp_path):
    engine = sample_engine(registry, "odd", {"behaviour.json": b"{truncated"}).digest
    report, _ = judge(registry, engine, tmp_path)
    assert report.outcome is Outcome.FAILED
    assert report.reasons == ("load: behaviour.json: not JSON",)


def test_a_server_that_is_killed_while_loading_is_errored_and_the_history_shows_it(
    registry, tmp_path
):
    engine = engine_of(registry)
    report, _ = judge(registry, engine, tmp_path, options=("--kill-at-load",))
    assert report.outcome is Outcome.ERRORED
    assert attached(registry, engine) == 1


def test_an_engine_that_crashes_under_a_question_fails_with_what_it_was(registry, tmp_path):
    engine = engine_of(registry, exit_after=0)
    report, _ = judge(registry, engine, tmp_path, policy=policy(performance=SPEED))
    assert report.outcome is Outcome.FAILED
    assert "exited with code 70 while it was asked" in report.load.reason
    assert outcomes(report) == {
        **GATE_ZERO,
        "load": Outcome.FAILED,
        "degenerate answers": Outcome.SKIPPED,
        "score": Outcome.ERRORED,
        "performance": Outcome.SKIPPED,
    }
    assert report.cases[1].attempts[0].error == "not asked: the server exited with code 70"


def test_an_engine_that_crashes_under_load_fails_although_it_answered_well(registry, tmp_path):
    # The suite's answers are shorter than five words, the load's are not.
    engine = engine_of(registry, exit_after=5)
    report, _ = judge(registry, engine, tmp_path, policy=policy(performance=SPEED))
    assert outcomes(report) == {
        **GATE_ZERO,
        "load": Outcome.FAILED,
        "score": Outcome.PASSED,
        "performance": Outcome.SKIPPED,
    }
    assert report.performance is not None
    assert report.performance.failed


def test_a_server_that_is_killed_from_outside_is_errored_whatever_was_lost_with_it(
    registry, tmp_path
):
    engine = engine_of(registry, kill_after=0)
    report, _ = judge(registry, engine, tmp_path)
    assert report.outcome is Outcome.ERRORED
    assert outcomes(report)["load"] is Outcome.ERRORED
    assert "was killed by SIGKILL while it was asked" in report.load.reason


def test_a_policy_that_does_not_fit_the_suite_is_refused_before_anything_runs(registry, tmp_path):
    engine = engine_of(registry)
    misfit = policy(quality={"min_score": 0.9, "min_tag_score": {"fact": 0.5}})
    with pytest.raises(InvalidInput, match="no case with tag fact"):
        judge(registry, engine, tmp_path, policy=misfit)
    assert attached(registry, engine) == 0
    assert not (tmp_path / "work").exists()


def blob_of(registry: Registry, engine, tmp_path: Path) -> Path:
    layer = registry.engines.engine(engine).manifest.layers[0]
    return tmp_path / "registry" / "blobs" / "sha256" / layer.digest.hex


def test_one_flipped_byte_is_refused_and_nothing_is_judged(registry, tmp_path):
    engine = engine_of(registry)
    blob = blob_of(registry, engine, tmp_path)
    data = bytearray(blob.read_bytes())
    data[5] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    with pytest.raises(IntegrityError):
        judge(registry, engine, tmp_path)
    assert attached(registry, engine) == 0
    assert list((tmp_path / "work").iterdir()) == []


def test_missing_bytes_are_not_found(registry, tmp_path):
    engine = engine_of(registry)
    blob_of(registry, engine, tmp_path).unlink()
    with pytest.raises(NotFound):
        judge(registry, engine, tmp_path)


def test_judging_again_adds_a_second_report_and_keeps_the_first(registry, tmp_path):
    engine = engine_of(registry)
    first = judge(registry, engine, tmp_path)[1]
    second = judge(registry, engine, tmp_path)[1]
    found = {link.manifest for link in registry.engines.referrers(engine, REPORT_ARTIFACT)}
    assert found == {first, second}
    assert first != second


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_at_any_write_of_attaching_leaves_no_half_report_and_a_rerun_ends_it(
    registry, tmp_path, mode
):
    engine = engine_of(registry)
    report, _ = judge(registry, engine, tmp_path)
    counted = FaultPlan()
    fresh = _registry_with(engine, registry.clock, tmp_path / "count")
    attach(Registry(faulty(fresh.stores, counted), fresh.clock), report)
    assert counted.writes >= 4
    for at in range(1, counted.writes + 1):
        whole = _registry_with(engine, registry.clock, tmp_path / f"crash-{at}")
        plan = FaultPlan(at, mode)
        with pytest.raises(SimulatedCrash):
            attach(Registry(faulty(whole.stores, plan), whole.clock), report)
        for link in whole.engines.referrers(engine, REPORT_ARTIFACT):
            assert read_report(whole, engine, link.manifest) == report
        referrer = attach(whole, report)
        assert read_report(whole, engine, referrer) == report


def _registry_with(engine, clock, root: Path) -> Registry:
    opened = open_registry(str(root), clock)
    opened.stores.blobs.add_bytes(b"founds it")
    assert engine_of(opened) == engine
    return opened


OWNER = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("gate_story", sys.argv[1])
story = importlib.util.module_from_spec(spec)
sys.modules["gate_story"] = story
spec.loader.exec_module(story)
work = Path(sys.argv[2])
registry = story.registry_at(work)
engine = story.engine_of(registry, ttft_s=600.0)
print("judging", flush=True)
story.judge(registry, engine, work)
"""


def _interrupt(tmp_path: Path, number: int) -> tuple[int, str]:
    """Start a gate whose engine never answers, send the signal while it waits; status, stderr."""
    work = tmp_path / "work"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, __file__, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        port = _wait_for_port(work, owner)
        os.kill(owner.pid, number)
        _, stderr = owner.communicate(timeout=PATIENCE_S)
        status = owner.returncode
    deadline = time.monotonic() + PATIENCE_S
    while _listens(port):
        assert time.monotonic() < deadline, "the server outlives the gate"
        time.sleep(0.02)
    return status, stderr


def _wait_for_port(work: Path, owner: subprocess.Popen[str]) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert owner.poll() is None, owner.stderr and owner.stderr.read()
        for log in work.glob("gate-*/server.log"):
            words = log.read_text().split()
            if "listens" in words and words[-1].isdigit():
                return int(words[-1])
        time.sleep(0.02)
    pytest.fail("the server did not start")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_ctrl_c_attaches_nothing_stops_the_server_and_leaves_no_files(registry, tmp_path):
    status, stderr = _interrupt(tmp_path, signal.SIGINT)
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr
    assert attached(registry, engine_of(registry, ttft_s=600.0)) == 0
    assert list((tmp_path / "work").iterdir()) == []


def test_kill_9_attaches_nothing_and_the_next_run_sweeps_and_finishes(registry, tmp_path):
    status, _ = _interrupt(tmp_path, signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert attached(registry, engine_of(registry, ttft_s=600.0)) == 0
    assert list((tmp_path / "work").iterdir()) != []
    report, _ = judge(registry, engine_of(registry), tmp_path)
    assert report.outcome is Outcome.PASSED
    assert list((tmp_path / "work").iterdir()) == []
