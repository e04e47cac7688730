"""`notify`, `mirror` and what `drift` leaves to them, as a person or a CI job runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_pipeline.deploy.drift import Drift
from engine_pipeline.deploy.rules import Difference
from engine_registry.changes import Held
from engine_registry.refs import ChannelRef
from engine_registry.testing.samples import sample_event
from tests.servers.mlflow_fake import mlflow_running
from tests.servers.receiver import Receiver, answer, hang, receiving
from tests.unit.cli.conftest import PRODUCT

SECRET = "a-secret-that-is-long-enough-to-use"
PROD = ChannelRef(PRODUCT, "prod")
SETTINGS = """\
schema_version: 1
destinations:
  room:
    url_env: ROOM_URL
    secrets: [ROOM_SECRET]
    events: [promoted, rolled-back, gate-failed, hold-set, drift]
    timeout: 30s
"""


@pytest.fixture
def receiver(project, monkeypatch) -> Iterator[Receiver]:
    with receiving() as running:
        monkeypatch.setenv("ROOM_URL", running.url)
        monkeypatch.setenv("ROOM_SECRET", SECRET)
        monkeypatch.setenv("ENGINECTL_STATE", str(project.root / "state"))
        (project.root / "notifications.yaml").write_text(SETTINGS)
        yield running


def hold(project) -> None:
    project.release("tiny")
    sample_event(project.registry, Held(reason="look first"), ref=PROD)


def test_what_happened_is_told_once_and_the_log_shows_it(project, receiver):
    hold(project)
    ran = project.run("notify", "run", as_json=True)
    assert ran.code == 0, ran.err
    (row,) = ran.json["destinations"]
    assert (row["name"], row["delivered"], row["waiting"]) == ("room", 1, 0)
    assert [call.json["event"] for call in receiver.calls] == ["hold-set"]
    assert project.run("notify", "run").code == 0
    assert len(receiver.calls) == 1
    log = project.run("notify", "log", "room", "--last", "1")
    assert "sent at attempt 1: 204" in log.out
    assert receiver.calls[0].delivery in log.out


def test_who_asks_for_it_hears_where_an_approval_is_needed(project, receiver):
    path = project.root / "notifications.yaml"
    path.write_text(SETTINGS.replace("hold-set", "approval-needed"))
    project.release("tiny")
    assert project.run("notify", "run").code == 0
    told = {call.json["channel"]: call.json["text"] for call in receiver.calls}
    assert set(told) == {f"{PRODUCT}/guarded", f"{PRODUCT}/proved"}
    assert all("needs 1 more approval" in text for text in told.values())


def test_a_receiver_that_fails_is_exit_9_with_the_reason_and_no_secret(
    project, receiver, monkeypatch
):
    hold(project)
    monkeypatch.setenv("ROOM_URL", receiver.url + "/T0/very-secret-path")
    receiver.always = answer(500, "out of order", retry_after="3600")
    ran = project.run("notify", "run")
    assert ran.code == 9
    assert "500: out of order" in ran.out
    log = project.run("notify", "log")
    files = b"".join(path.read_bytes() for path in (project.root / "state").rglob("*.*"))
    for text in (ran.out, ran.err, log.out, files.decode(errors="replace")):
        assert "very-secret-path" not in text
        assert SECRET not in text


def test_a_test_call_is_signed_and_leaves_no_trace_in_what_is_due(project, receiver):
    project.release("tiny")
    ran = project.run("notify", "test", "room", as_json=True)
    assert ran.code == 0
    assert ran.json["delivered"]
    (call,) = receiver.calls
    assert call.json["event"] == "test"
    assert call.delivery == ran.json["delivery"]
    assert "webhook-signature" in call.headers


def test_a_test_call_without_a_name_or_to_nobody_says_whom_there_is(project, receiver):
    project.release("tiny")
    assert "error[destination-missing]" in project.run("notify", "test").err
    assert "there are room" in project.run("notify", "test", "rom").err


def test_no_settings_is_an_error_with_the_next_step(project):
    project.release("tiny")
    ran = project.run("notify", "run")
    assert ran.code == 8
    assert "error[notifications-missing]" in ran.err


def test_settings_are_checked_by_validate(project, receiver):
    assert "notifications.yaml (notifications)" in project.run("validate").out
    path = project.root / "notifications.yaml"
    path.write_text(SETTINGS.replace("hold-set", "hold-sat"))
    ran = project.run("validate", str(path))
    assert ran.code == 2
    assert "hold-sat" in ran.out


def test_a_rollback_calls_nobody_and_is_told_by_the_next_run(project, receiver):
    receiver.always = hang
    first, second = project.release("one"), project.release("two")
    for release in (first, second):
        assert project.run("promote", release.name, "--to", "staging").code == 0
    channel = f"{PRODUCT}/staging"
    assert project.run("rollback", channel, "--reason", "answers in Latin").code == 0
    assert receiver.calls == []
    receiver.always = answer(204)
    assert project.run("notify", "run").code == 0
    told = [call.json["event"] for call in receiver.calls]
    assert told == ["promoted", "promoted", "rolled-back", "hold-set"]


def test_a_broken_notifications_file_stops_no_promotion(project, receiver):
    (project.root / "notifications.yaml").write_text("destinations: [")
    release = project.release("one")
    assert project.run("promote", release.name, "--to", "staging").code == 0


def test_drift_is_told_once_a_day_by_the_next_run(project, receiver):
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.cli.wiring_deliveries import note_drift

    project.release("tiny")
    shell = Shell(
        registry_url=os.environ["ENGINECTL_REGISTRY"], channels_file="channels.yaml", cache_dir=None
    )

    class Wanted:
        channel, event = PROD, 3

    difference = Difference(what="release", channel="7", target="6")
    drift = Drift(wanted=Wanted(), reading=None, differences=(difference,), is_damaged=False)
    for _ in range(2):
        note_drift(shell, [("h100-a", drift)])
    assert project.run("notify", "run").code == 0
    (call,) = receiver.calls
    assert call.json["event"] == "drift"
    assert call.json["details"]["differences"] == [
        {"what": "release", "channel": "7", "target": "6"}
    ]


def test_trouble_with_telling_of_drift_is_no_trouble_of_drift(project, receiver, capsys):
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.cli.wiring_deliveries import note_drift

    (project.root / "notifications.yaml").write_text("destinations: [")
    shell = Shell(
        registry_url=os.environ["ENGINECTL_REGISTRY"], channels_file="channels.yaml", cache_dir=None
    )
    difference = Difference(what="release", channel="7", target="6")
    drift = Drift(wanted=None, reading=None, differences=(difference,), is_damaged=False)
    note_drift(shell, [("h100-a", drift)])
    assert "nobody is told of this drift" in capsys.readouterr().err


def test_mirroring_through_the_command_line_catches_up(project, monkeypatch):
    monkeypatch.setenv("ENGINECTL_STATE", str(project.root / "state"))
    release = project.release("one")
    assert project.run("promote", release.name, "--to", "staging").code == 0
    down = project.run("mirror", "mlflow", "--uri", "http://127.0.0.1:9")
    assert down.code == 9
    with mlflow_running() as mlflow:
        ran = project.run("mirror", "mlflow", "--uri", mlflow.uri, as_json=True)
        assert ran.code == 0, ran.err
        assert ran.json["destinations"][0]["delivered"] == 4
        (model,) = mlflow.models.values()
        assert model["aliases"] == {"staging": "1"}


def test_mirroring_without_an_address_or_under_a_bad_prefix_says_what_to_do(project, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    project.release("one")
    assert "MLFLOW_TRACKING_URI" in project.run("mirror", "mlflow").err
    ran = project.run("mirror", "mlflow", "--uri", "http://127.0.0.1:9", "--prefix", "A/B")
    assert "error[mlflow-prefix]" in ran.err


def process(project, *args: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    root = Path(__file__).resolve().parents[3]
    paths = os.pathsep.join(str(root / part) for part in ("registry", "pipeline"))
    program = "import sys; from engine_pipeline.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_killed_between_sending_and_writing_that_down_it_sends_again_under_the_same_id(
    project, receiver
):
    hold(project)
    taken = threading.Event()

    def take_and_say_nothing(handler) -> None:
        taken.set()
        hang(handler)

    receiver.answers.append(take_and_say_nothing)
    running = process(project, "notify", "run")
    first = receiver.wait_for_call()  # the receiver has it, the sender does not know yet
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    running.communicate()
    assert project.run("notify", "run").code == 0
    again = receiver.calls[1]
    assert (again.delivery, again.body) == (first.delivery, first.body)
    assert project.run("notify", "run").code == 0
    assert len(receiver.calls) == 2


def test_a_watch_delivers_what_happens_and_ends_whole_when_it_is_told_to(project, receiver):
    project.release("tiny")
    running = process(project, "notify", "run", "--watch", "--every", "1s", "--output", "json")
    for name in ("first", "second"):
        sample_event(project.registry, Held(reason=name), ref=PROD)
        assert name in receiver.wait_for_call().json["text"]
    sample_event(project.registry, Held(reason="third"), ref=PROD)
    assert receiver.wait_for_call().json["event"] == "hold-set"
    assert "error[delivery-running]" in project.run("notify", "run").err
    running.terminate()
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert json.loads(out)["destinations"][0]["waiting"] == 0
    assert project.run("notify", "run").code == 0
    assert len(receiver.calls) == 3


def test_a_damaged_document_is_named_with_exit_11_and_the_rest_is_told(project, receiver):
    hold(project)
    (release,) = (project.root / "engines" / "releases").rglob("0000000001.json")
    release.chmod(0o644)
    release.write_text("not a document")
    ran = project.run("notify", "run")
    assert ran.code == 11
    assert "not readable: release" in ran.out
    assert [call.json["event"] for call in receiver.calls] == ["hold-set"]


def test_the_log_of_a_destination_that_never_was_is_not_an_empty_one(project, receiver):
    hold(project)
    refused = project.run("notify", "log", "rom")
    assert (refused.code, "error[unknown-destination]" in refused.err) == (8, True)
    assert "there are room" in refused.err
    assert project.run("notify", "log", "room").out == "nothing was delivered yet\n"
    project.run("notify", "run")
    settings = project.root / "notifications.yaml"
    settings.write_text(settings.read_text().replace("room:", "hall:"))
    assert "room: sent at attempt 1" in project.run("notify", "log", "room").out


def test_a_test_call_that_fails_says_what_to_do(project, receiver, monkeypatch):
    hold(project)
    receiver.always = answer(500)
    assert "next      put the receiver right" in project.run("notify", "test", "room").out
    monkeypatch.delenv("ROOM_SECRET")
    said = project.run("notify", "test", "room").out
    assert "next      put notifications.yaml or the environment right" in said
    assert "`enginectl notify test room` again" in said
