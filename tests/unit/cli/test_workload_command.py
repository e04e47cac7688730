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
    assert again.code == 7
    assert "may-2026.yaml is there already" in again.err
    assert "--out workloads/may-2026-2.yaml" in again.err


@pytest.mark.parametrize("name", ["Chat", "a b", "../../x", "-", "a" * 65])
def test_a_name_that_is_none_is_refused_before_the_log_is_read(project, name):
    done = project.run("workload", "capture", "nothing.jsonl", f"--name={name}")
    assert done.code == 2
    assert done.err.startswith(f"error[usage]: --name: {name!r} is no name: want small letters")


def test_a_log_with_a_long_name_gives_a_name_that_fits(project):
    (project.root / f"{'a' * 90}.jsonl").write_text(LOG)
    done = project.run("workload", "capture", f"{'a' * 90}.jsonl")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("capture", "golden_prompts"), 2, "golden_prompts: a directory, want a log"),
        (("capture", "/dev/null"), 2, "/dev/null: no regular file, want a log"),
        (("capture", "torn.jsonl.gz"), 2, "torn.jsonl.gz: not a whole .gz file"),
        (("capture", "channels.yaml"), 2, "no line of channels.yaml could be used"),
        (("show", "golden_prompts"), 2, "golden_prompts: a directory, want a YAML file"),
        (("show", "/dev/null"), 2, "/dev/null: no regular file, want a YAML file"),
        (("show", "nope.yaml"), 8, "YAML files in .: channels.yaml"),
        (("show", "no/nope.yaml"), 8, "there is no folder no"),
        (("show", "channels.yaml", "--name", "chat"), 2, "--name goes with capture"),
    ],
)
def test_what_is_no_such_file_is_said_as_what_it_is(project, args, code, says):
    (project.root / "torn.jsonl.gz").write_bytes(b"no gzip")
    done = project.run("workload", *args)
    assert says in done.err
    assert done.code == code


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
