"""The whole story on real weights, through the real command line."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress

import pytest

from tests.e2e.conftest import INT4, INT8, PRODUCT, served_processes

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

STAGING, PROD = f"{PRODUCT}/staging", f"{PRODUCT}/prod"


def live(project, channel: str) -> str | None:
    (state,) = project.ok("status", channel)["channels"]
    return state["release"]["content"]["engine"] if state["release"] else None


def test_from_spec_to_rollback(built):
    project = built.project
    assert project.ok("lock", "--check", INT8, INT4)["locks"][0]["current"]
    again = project.ok("build", INT8)
    assert (again["engine"], again["reused"]) == (built.int8, "engine")
    judged = project.ok("gate", built.int8)["gates"][0]
    assert (judged["outcome"], judged["reused"]) == ("passed", True)

    releases = [project.ok("release", engine)["name"] for engine in (built.int8, built.int4)]
    assert releases == [f"{PRODUCT}:1", f"{PRODUCT}:2"]
    assert project.ok("release", built.int8)["name"] == releases[0]
    for release in releases:
        for channel in ("staging", "prod"):
            assert project.ok("promote", release, "--to", channel)["changed"]
    assert live(project, PROD) == built.int4

    differ = {row["what"] for row in project.ok("diff", *releases)["changed"]}
    assert {"engine", "precision.weights", "precision.recipe"} <= differ
    back = project.ok("rollback", PROD, "--to", built.int8[:19], "--reason", "INT4 is looser")
    assert back["changed"]
    assert live(project, PROD) == built.int8
    assert live(project, STAGING) == built.int4

    kinds = [e["change"]["kind"] for e in project.ok("history", PROD)["events"]]
    assert kinds == ["promoted", "promoted", "rolled-back"]
    report = project.ok("show", built.int8, "--report")["report"]
    assert report["engine"] == built.int8
    assert report["performance"]["metrics"]
    assert project.ok("verify")["ok"]


def test_a_build_killed_at_every_step_in_turn_finishes_when_run_again(project, built_once):
    for phase in ("look-up", "preflight", "fetch", "convert", "quantise", "inspect"):
        killed, lines = project.kill_at_phase(phase, "build", INT8)
        assert killed, lines
        assert not leftovers(project)
        if project.registry_dir.exists():
            assert project.run("verify").code in {0, 8}
    result = project.ok("build", INT8)
    assert result["engine"] == built_once.int8  # the same bytes as an undisturbed build
    reused = {step["name"] for step in result["steps"] if step["reused"]}
    assert {"fetch", "convert"} <= reused  # it went on where it was
    assert project.ok("verify")["ok"]


def test_a_gate_killed_at_every_phase_in_turn_leaves_no_server_and_no_report(built):
    project, engine = built.project, built.int8
    before = len(project.ok("show", engine)["attached"])
    for phase in ("check", "load", "golden", "speed"):
        killed, lines = project.kill_at_phase(phase, "gate", engine, "--again")
        assert killed, lines
        assert not leftovers(project)
        assert len(project.ok("show", engine)["attached"]) == before
    assert project.ok("gate", engine, "--again")["outcome"] == "passed"
    assert project.ok("verify")["ok"]


def test_release_promote_and_rollback_killed_at_any_moment_finish_when_run_again(built):
    project = built.project
    first = repeat_until_done(project, "release", built.int8)["name"]
    second = repeat_until_done(project, "release", built.int4)["name"]
    for release in (first, second):
        for channel in ("staging", "prod"):
            repeat_until_done(project, "promote", release, "--to", channel)
    assert live(project, PROD) == built.int4
    repeat_until_done(project, "rollback", PROD, "--to", "1", "--reason", "story", accept=(0, 2))
    assert live(project, PROD) == built.int8
    numbers = [event["number"] for event in project.ok("history", PROD)["events"]]
    assert numbers == [1, 2, 3]  # a finished act repeated has no second effect
    assert project.ok("verify")["ok"]


def repeat_until_done(project, *args: str, accept: tuple[int, ...] = (0,)) -> dict:
    """Run a command, killing it after 0.03 s, 0.06 s, … until it lives long enough to finish."""
    for step in range(1, 200):
        process = project.start(*args, "--output", "json")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.03 * step)
        process.kill()
        _, err = process.communicate(timeout=60)
        if process.returncode in accept:
            ran = project.run(*args)
            assert ran.code in accept, ran.err
            return ran.json
        assert process.returncode == -9, f"{args}: {process.returncode} {err}"
    pytest.fail(f"{args} never finished")
    raise AssertionError


def leftovers(project) -> list[str]:
    """Processes of a killed command that are still there after five seconds."""
    deadline = time.monotonic() + 5
    while (found := served_processes(project.root)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_one_flipped_byte_of_the_weights_is_refused_with_exit_11(built):
    project = built.project
    releases = [project.ok("release", engine)["name"] for engine in (built.int8, built.int4)]
    for release in releases:
        project.ok("promote", release, "--to", "staging")
    layer = project.ok("show", built.int8)["manifest"]["layers"][0]
    path = project.registry_dir / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # the undamaged bytes are shared with other tests
    path.write_bytes(data)
    for command in (
        ("gate", built.int8, "--again"),
        ("promote", releases[0], "--to", "prod"),
        ("rollback", STAGING, "--reason", "try"),
    ):
        refused = project.run(*command)
        assert refused.code == 11, (command, refused.err)
        assert layer["digest"].removeprefix("sha256:")[:12] in refused.err
    assert live(project, STAGING) == built.int4
    assert project.run("verify").code == 11


def test_32_processes_promoting_at_once_leave_a_log_without_a_gap(built):
    project = built.project
    names = [project.ok("release", engine)["name"] for engine in (built.int8, built.int4)]
    racers = [
        project.start("promote", names[n % 2], "--to", "staging", "-o", "json") for n in range(32)
    ]
    ended = [(racer.communicate(timeout=300), racer.returncode) for racer in racers]
    assert {code for _, code in ended} <= {0, 7}, [err for (_, err), _ in ended]
    events = project.ok("history", STAGING)["events"]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    won = [json.loads(out) for (out, _), code in ended if code == 0]
    mine = [doc["event"]["number"] for doc in won if doc["changed"]]
    assert sorted(mine) == [event["number"] for event in events]  # exactly one winner each
    assert project.ok("verify")["ok"]
