"""What a step's process sees, and what no log shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine_pipeline
from engine_pipeline.runners.environment import secrets_of, step_environment, without_secrets
from engine_pipeline.runners.step_log import Lines


def test_a_checkout_is_found_without_the_callers_python_path(tmp_path):
    environment = step_environment((), tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": "/x"})
    found = subprocess.run(
        [sys.executable, "-c", "import engine_pipeline, engine_registry as r; print(r.__file__)"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip().endswith("__init__.py")
    assert "/x" not in environment["PYTHONPATH"]


def test_an_installed_package_is_not_put_before_the_standard_library(tmp_path, monkeypatch):
    installed = str(Path(engine_pipeline.__path__[0]).resolve().parent)
    monkeypatch.setattr("sysconfig.get_path", lambda _: installed)
    assert installed not in step_environment((), tmp_path, {})["PYTHONPATH"].split(os.pathsep)


def test_nothing_else_of_the_callers_environment_is_passed_on(tmp_path):
    inherited = {"HOME": "/h", "AWS_SECRET_ACCESS_KEY": "no", "HF_TOKEN": "yes", "SHELL": "no"}
    environment = step_environment(("HF_TOKEN", "ABSENT"), tmp_path, inherited)
    assert {"HOME", "HF_TOKEN"} <= environment.keys()
    assert not {"AWS_SECRET_ACCESS_KEY", "SHELL", "ABSENT"} & environment.keys()


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "hf_0123456789", True),
        ("my_api_key", "0123456789", True),
        ("DB_PASSWORD", "0123456789", True),
        ("HF_TOKEN_PATH", "/home/me/token", False),
        ("HF_ENDPOINT", "https://example.org", False),
        ("HF_TOKEN", "short", False),
    ],
)
def test_secrets_are_known_by_their_names(name, value, secret):
    assert bool(secrets_of({name: value})) is secret


def test_a_secret_within_another_is_hidden_whole():
    secrets = secrets_of({"A_TOKEN": "secret-1", "B_TOKEN": "secret-1-longer"})
    assert without_secrets("secret-1-longer and secret-1", secrets) == "[secret] and [secret]"


def test_lines_are_the_same_however_the_stream_is_cut():
    data = "one\ntwo\rthree\r\n\nfour ü".encode()
    for size in range(1, len(data)):
        lines = Lines()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        found = [line for piece in [*pieces, b""] for line in lines.feed(piece)]
        assert found == ["one", "two", "three", "four ü"]


def test_a_line_without_end_is_cut():
    lines = Lines()
    assert [len(line) for line in lines.feed(b"x" * 100_000)] == [100_000]
    assert list(lines.feed(b"")) == []
