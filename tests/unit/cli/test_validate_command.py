"""`validate` on every kind of file, under whatever name it has."""

from __future__ import annotations

import shutil

import pytest

from tests.unit.cli.conftest import CASES, CHANNELS, SUITE

WORKLOAD = """\
schema_version: 1
name: chat
prompt_tokens: {kind: fixed, tokens: 32}
output_tokens: {kind: fixed, tokens: 8}
arrival: {kind: concurrency, steps: [1]}
requests: 3
"""
BAKEOFF = """\
schema_version: 1
name: which
contestants:
  - {name: a, engine: tiny/cpu-x86-64-v3:1}
  - {name: b, engine: tiny/cpu-x86-64-v3:2}
suites: [core]
load: {requests: 4, concurrency: [1], output_tokens: 4}
optimise: [quality]
"""
TARGETS = """\
schema_version: 1
targets:
  one: {kind: directory, channel: tiny/cpu-x86-64-v3/prod, path: /srv/models}
"""
NOTIFICATIONS = """\
schema_version: 1
destinations:
  desk: {url_env: DESK_URL, secrets: [DESK_SECRET], events: [promoted]}
"""
PREFIXES = """\
schema_version: 1
prefixes: [{id: one, system: Say yes.}]
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (CHANNELS, "policies"),
        (WORKLOAD, "workload"),
        (BAKEOFF, "bake-off"),
        (TARGETS, "targets"),
        (NOTIFICATIONS, "notifications"),
        (PREFIXES, "prefixes"),
        (CASES, "cases"),
        (SUITE, "suite"),
    ],
)
def test_a_file_under_any_name_is_judged_as_what_its_keys_say(project, text, what):
    (project.root / "mine.yaml").write_text(text)
    good = project.run("validate", "mine.yaml")
    assert good.out == f"ok mine.yaml ({what})\n", good.err
    (project.root / "mine.yaml").write_text(f"{text}nonsense: 1\n")
    bad = project.run("validate", "mine.yaml")
    assert bad.code == 2
    assert f"failed mine.yaml ({what})\n" in bad.out
    assert "mine.yaml:" in bad.out.splitlines()[1]
    assert "nonsense: unknown key" in bad.out


def test_a_file_of_no_kind_that_is_known_is_said_to_be_taken_for_a_spec(project):
    (project.root / "mine.yaml").write_text("colour: blue\n")
    ran = project.run("validate", "mine.yaml")
    assert ran.code == 2
    assert "warning: taken for a spec" in ran.out


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("cases.yaml", "cases: [{id: one}]\n", "cases.yaml:1: cases.0.tags: missing"),
        ("prefixes.yaml", "schema_version: 1\n", "prefixes.yaml:1: prefixes: missing"),
        ("template.yaml", "schema_version: 1\n", "template.yaml:1: reference: missing"),
        ("suite.yaml", "schema_version: 1\n", "suite.yaml:1: name: missing"),
    ],
)
def test_a_problem_of_a_suite_names_the_file_that_it_is_in(project, file, text, says):
    (project.root / "golden_prompts/core" / file).write_text(text)
    for path in ("golden_prompts/core", "golden_prompts/core/suite.yaml"):
        ran = project.run("validate", path)
        assert ran.code == 2
        assert f"    golden_prompts/core/{says}" in ran.out


def test_the_folder_one_stands_in_can_be_named(project, monkeypatch):
    monkeypatch.chdir(project.root / "golden_prompts/core")
    assert project.run("validate", ".").out == "ok . (suite)\n"
    assert project.run("validate", "suite.yaml").out == "ok suite.yaml (suite)\n"


def test_a_folder_of_suites_names_them_and_a_folder_of_specs_its_files(project):
    ran = project.run("validate", "golden_prompts")
    assert ran.code == 2
    assert "golden_prompts: no suite, it has no suite.yaml; suites below it: core" in ran.out
    assert "run `enginectl validate golden_prompts/core`" in ran.out
    (project.root / "loads").mkdir()
    (project.root / "loads/chat.yaml").write_text(WORKLOAD)
    ran = project.run("validate", "loads")
    assert "run `enginectl validate loads/*.yaml`" in ran.out


def test_policies_elsewhere_are_judged_with_what_lies_beside_them(project):
    """Not with what lies in the working directory."""
    other = project.root / "other"
    shutil.copytree(project.root / "golden_prompts", other / "golden_prompts")
    local = "embeddings: {file: small.gguf, digest: 'sha256:" + "0" * 64 + "'}"
    (other / "channels.yaml").write_text(
        CHANNELS.replace("    suite: core\n", f"    suite: core\n    {local}\n")
    )
    (project.root / "golden_prompts/core/suite.yaml").unlink()
    ran = project.run("validate", "other/channels.yaml")
    assert ran.code == 0, ran.out
    assert "warning: gate core: embedding model small.gguf" in ran.out
    assert project.run("validate", "channels.yaml").code == 2


def test_the_next_command_of_an_invalid_file_can_be_pasted(project):
    (project.root / "my load.yaml").write_text(WORKLOAD + "nonsense: 1\n")
    ran = project.run("workload", "show", "my load.yaml")
    assert ran.code == 2
    command = ran.err.split("`")[1]
    assert command == "enginectl validate 'my load.yaml'"
    assert "my load.yaml (workload)" in project.run("validate", "my load.yaml").out


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("pre-prod: {gates: [nope]}", "policies.0.channels.pre-prod: no gate nope; there are core"),
        (
            "pre-prod: {gates: [core], upstream: no}",
            "channels.pre-prod: upstream no is not one of ",
        ),
        (
            "pre-prod: {gates: [core], signed: [gate]}",
            "channels.pre-prod: signed gate, but no key ",
        ),
    ],
)
def test_a_rule_about_a_channel_names_the_channels_line(project, wrong, says):
    path = project.root / "c8.yaml"
    text = (project.root / "channels.yaml").read_text().rstrip()
    path.write_text(f"{text}\n      {wrong}\n")
    line = len(path.read_text().splitlines())
    validated = project.run("validate", "c8.yaml")
    assert f"c8.yaml:{line}: " in validated.out
    assert says in validated.out
