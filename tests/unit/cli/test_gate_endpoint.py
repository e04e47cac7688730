"""`gate --endpoint`: a running server is judged, reported and believed for no release."""

from __future__ import annotations

import json

import pytest

from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_registry.manifest import REPORT_ARTIFACT
from tests.unit.gates.test_endpoint_gate import listening

KEY = "sk-0123456789abcdef"
NOBODY = ("--endpoint", "http://127.0.0.1:9", "--model", "m")
YES = Behaviour(answer="yes, of course")


def test_a_running_server_is_judged_by_a_suite_and_by_a_gate(project, tmp_path):
    page = tmp_path / "gate.html"
    with listening(ChatServer(YES)) as url:
        by = ("gate", "--endpoint", f"{url}/v1", "--model", "engine", "--output", "json")
        suite = project.run(*by, "--suite", "core", "--report", str(page))
        gate = project.run(*by, "--gate", "core")
    for ran in (suite, gate):
        assert ran.code == 0, ran.err
        assert ran.json["outcome"] == "passed"
        assert ran.json["attached"] is False
        assert ran.json["endpoint"]["url"] == url
        assert "engine" not in ran.json
        assert ran.json["gates"][0]["report"] is None
    assert "endpoint engine at http" in page.read_text()


def test_what_it_shows_for_a_released_engine_is_no_evidence(project):
    engine = project.release("first", None).content.engine
    with listening(ChatServer(YES)) as url:
        ran = project.run("gate", "--endpoint", url, "--model", "engine", "--gate", "core")
    assert "nothing is attached" in ran.out
    assert not project.registry.engines.referrers(engine, REPORT_ARTIFACT)
    refused = project.run("promote", "tiny/cpu-x86-64-v3:1", "--to", "staging")
    assert refused.code == 5
    assert "is judged by no report" in refused.err


def test_a_bad_server_ends_with_3_and_its_reason(project):
    with listening(ChatServer(Behaviour(answer="no"))) as url:
        ran = project.run("gate", "--endpoint", url, "--model", "engine", "--suite", "core")
    assert ran.code == 3
    assert "failed gate core on endpoint engine at http" in ran.out
    with listening(ChatServer(Behaviour(answer="no"))) as url:
        by = ("gate", "--endpoint", url, "--model", "engine", "--suite", "core")
        assert project.run(*by, "--min-score", "0.0").code == 2


def test_a_key_is_named_by_its_variable_and_shown_nowhere(project, monkeypatch):
    by = ("--model", "engine", "--suite", "core", "--api-key-env", "THE_KEY")
    with listening(ChatServer(YES, api_key=KEY)) as url:
        unset = project.run("gate", "--endpoint", url, *by)
        monkeypatch.setenv("THE_KEY", KEY)
        right = project.run("gate", "--endpoint", url, *by)
        monkeypatch.setenv("THE_KEY", KEY[::-1])
        wrong = project.run("gate", "--endpoint", url, *by)
    assert (unset.code, right.code, wrong.code) == (2, 0, 2)
    assert "THE_KEY, which is not set" in unset.err
    for ran in (right, wrong):
        assert KEY not in ran.out + ran.err
        assert KEY[::-1] not in ran.out + ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name an ENGINE, or a running server"),
        (("--endpoint", "http://x", "--suite", "core"), "needs --model"),
        (("--endpoint", "http://x", "--model", "m"), "needs a --gate of channels.yaml, or"),
        (
            ("--endpoint", "http://x", "--model", "m", "--suite", "core", "--gate", "core"),
            "--gate core and --suite core exclude each other",
        ),
        (
            (*NOBODY, "--suite", "core", "--report", "z.md", "--junit", "./z.md"),
            "z.md is named twice: one report would overwrite the other",
        ),
        (("build_specs/tiny/cpu.yaml",), "build_specs/tiny/cpu.yaml: a spec, want an engine"),
        (("x", "--min-score", "half"), "'half' is no number: want one more than 0 up to 1"),
        (("12345678", "--endpoint", "http://x"), "12345678 does not go with --endpoint"),
        (("--endpoint", "http://x", "--parent", "prod"), "--parent does not go with"),
        (("12345678", "--suite", "core"), "--suite needs --endpoint"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anybody_is_asked(project, words, message):
    ran = project.run("gate", *words)
    assert ran.code == 2
    assert message in ran.err


def test_the_suite_is_looked_up_before_anybody_is_asked(project):
    """Nobody listens there: asked first, it would be exit 9."""
    ran = project.run("gate", "--endpoint", "http://127.0.0.1:9", "--model", "m", "--suite", "nope")
    assert ran.code == 8
    assert "no suite 'nope'" in ran.err


def test_an_address_that_nobody_listens_at_can_be_tried_again(project):
    ran = project.run(
        "gate", "--endpoint", "http://127.0.0.1:9", "--model", "m", "--suite", "core", "-o", "json"
    )
    assert ran.code == 9
    assert json.loads(ran.out)["error"]["reference"] == "endpoint-unavailable"
