"""`enginectl workload` from the outside, and lanes whose workload is in a file."""

from __future__ import annotations

import json

import pytest

from engine_pipeline.workload.file import load_workload
from engine_registry.digest import Digest

LOG = "".join(
    json.dumps(
        {
            "timestamp": 1.7e9 + n * 0.25,
            "messages": [{"role": "user", "content": "what does Ada owe us?"}],
            "usage": {"prompt_tokens": 100 + n % 50, "completion_tokens": 20},
        }
    )
    + "\n"
    for n in range(900)
)


@pytest.fixture
def log(project):
    (project.root / "May 2026.jsonl").write_text(LOG + "not JSON\n")
    return "May 2026.jsonl"


def test_a_log_becomes_a_workload_that_says_where_it_comes_from_and_nothing_of_what_was_said(
    project, log
):
    done = project.run("workload", "capture", log)
    assert done.code == 0, done.err
    path = project.root / "workloads" / "may-2026.yaml"
    assert "captured from 900 lines" in done.out
    assert "skipped 1: not JSON" in done.out
    assert "4 requests/s" in done.out
    assert max(map(len, done.out.splitlines())) <= 120
    assert "Ada" not in path.read_text()
    shown = project.run("workload", "show", str(path), "--output", "json")
    document = json.loads(shown.out)
    assert document["digest"] == str(load_workload(path).digest)
    assert document["workload"]["requests"] == 300


def test_a_second_capture_does_not_write_over_the_first(project, log):
    assert project.run("workload", "capture", log).code == 0
    again = project.run("workload", "capture", log)
    assert again.code == 2
    assert "exists already" in again.err


def test_a_log_that_is_not_there_is_named(project):
    done = project.run("workload", "capture", "nothing.jsonl")
    assert done.code == 8
    assert "nothing.jsonl: no such log" in done.err


def with_lane(project, digest: Digest) -> None:
    path = project.root / "channels.yaml"
    lane = (
        "    lanes:\n"
        "      interactive:\n"
        f"        workload_file: {{file: workloads/chat.yaml, digest: '{digest}'}}\n"
        "        ceilings: {ttft_p95_ms: 900}\n"
    )
    [quality] = [line for line in path.read_text().splitlines() if "    quality:" in line][:1]
    path.write_text(path.read_text().replace(quality + "\n", f"{quality}\n{lane}", 1))


def test_a_lane_takes_the_workload_that_it_pins_and_no_other(project, log):
    written = project.run("workload", "capture", log, "--name", "chat")
    assert written.code == 0, written.err
    digest = load_workload(project.root / "workloads" / "chat.yaml").digest
    before = (project.root / "channels.yaml").read_text()
    with_lane(project, digest)
    good = project.run("validate", "channels.yaml")
    assert good.code == 0, good.out + good.err
    (project.root / "channels.yaml").write_text(before)
    with_lane(project, Digest.of(b"another"))
    bad = project.run("validate", "channels.yaml")
    assert bad.code == 2
    assert f"is workload {digest.short}, the lane pins" in bad.out
