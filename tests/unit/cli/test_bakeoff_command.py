"""`enginectl bakeoff` from the outside: forms, exit codes, refusals before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_pipeline.workload.file import load_workload
from tests.servers.endpoint import endpoint

KEY = "sk-proj-Zx81QwErTyUiOpAsDfGh"
FILE = """\
schema_version: 1
name: demo
contestants:
  - name: near
    endpoint: {{url: "{near}", model: engine, api_key_env: NEAR_KEY}}
    model_revision: r1
    chat_template: t1
    price: {{per_million_output_tokens: 1.0}}
  - name: far
    endpoint: {{url: "{far}", model: engine}}
    model_revision: r1
    chat_template: t1
    price: {{per_million_output_tokens: 2.0}}
  - name: ours
    engine: tiny/cpu-x86-64-v3:7
    price: {{per_hour: 1.0}}
suites: [core]
load: {{requests: 4, concurrency: [2], output_tokens: 4, prompt_words: 8}}
limits: {{min_score: {bar}}}
optimise: [cost, quality]
"""
YES = {"Say yes.": "yes, of course"}


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setenv("NEAR_KEY", KEY)
    with (
        endpoint(answers=YES, api_key=KEY) as (near, _),
        endpoint(answers=YES) as (far, _),
    ):
        yield {"near": near, "far": far}


def written(project, servers, *, bar: float = 0.5) -> str:
    (project.root / "demo.yaml").write_text(FILE.format(**servers, bar=bar))
    return "demo.yaml"


def test_the_answer_is_a_table_of_100_columns_and_every_form_is_written(project, servers):
    forms = [f"out.{suffix}" for suffix in ("html", "md", "json")]
    reports = [word for name in forms for word in ("--report", name)]
    done = project.run("bakeoff", written(project, servers), *reports)
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 100
    assert "Take near (with 2 in flight)" in done.out
    assert "ours: not measured: " in done.out
    whole = done.out + done.err + "".join(Path(name).read_text() for name in forms)
    assert KEY[:12] not in whole
    assert json.loads(Path("out.json").read_text())["winner"] == "near"


def test_json_is_one_document_with_the_choice_and_what_would_flip_it(project, servers):
    done = project.run("bakeoff", written(project, servers), as_json=True)
    assert (done.json["winner"], done.json["outcome"]) == ("near", "passed")
    assert done.json["flips"][0]["lever"] == "price"
    assert KEY[:12] not in done.out


def test_a_limit_that_everybody_judged_misses_is_no_recommendation(project, servers):
    servers_wrong = dict(servers)
    with endpoint(answers={"Say yes.": "no"}) as (wrong, _):
        servers_wrong |= {"near": wrong, "far": wrong}
        path = written(project, servers_wrong)
        text = Path(path).read_text()
        cut = text[: text.index("  - name: ours")] + text[text.index("suites:") :]
        Path(path).write_text(cut)
        assert project.run("bakeoff", path).code == 3


def test_evidence_that_tells_nothing_is_neither_yes_nor_no(project):
    nowhere = {"near": "http://127.0.0.1:1", "far": "http://127.0.0.1:1/x"}
    done = project.run("bakeoff", written(project, nowhere))
    assert done.code == 4
    assert "NEAR_KEY, which is not set" in done.out
    # Better than whom, where nobody was measured?
    assert "may be better than all of these" not in done.out


@pytest.mark.parametrize("named", ["nonsense", "build_specs/tiny.yaml"])
def test_a_contestant_that_is_mistyped_is_refused_before_anybody_is_asked(project, servers, named):
    path = written(project, servers)
    Path(path).write_text(Path(path).read_text().replace("tiny/cpu-x86-64-v3:7", named))
    done = project.run("bakeoff", path)
    assert done.code == 2
    assert f"contestant ours: not a reference: '{named}'" in done.err
    assert "contestant 1 of 3" not in done.err


def test_a_revision_that_is_not_the_engines_is_refused_before_anybody_is_asked(
    project, servers, monkeypatch
):
    """The file names what the lock says or nothing: a difference is a mistake of the file."""
    from engine_pipeline.bakeoff.entry import checked_identity
    from engine_pipeline.bakeoff.file import Contestant
    from engine_pipeline.cli import contesting
    from engine_registry.digest import Digest

    def built_from_another(shell, file, contestant: Contestant, named: str):
        return checked_identity(contestant, Digest.of(b"engine"), "0.1.2", None)

    monkeypatch.setattr(contesting, "_engine", built_from_another)
    path = written(project, servers)
    text = Path(path).read_text()
    Path(path).write_text(text.replace("v3:7\n", "v3:7\n    model_revision: '0.1.3'\n"))
    done = project.run("bakeoff", path)
    assert done.code == 2
    assert "contestant ours: the file states model_revision 0.1.3, the engine" in done.err
    assert "contestant 1 of 3" not in done.err


def test_one_file_takes_one_report(project, servers):
    path = written(project, servers)
    done = project.run("bakeoff", path, "--report", "a.md", "--report", "./a.md")
    assert done.code == 2
    assert "a.md is named twice" in done.err


def test_a_report_that_could_not_be_written_is_refused_before_anything_is_asked(project, servers):
    path = written(project, servers)
    assert project.run("bakeoff", path, "--report", "out.txt").code == 2
    done = project.run("bakeoff", path, "--report", "nowhere/out.html")
    assert done.code == 2
    assert "report-file-invalid" in done.err


def test_the_schema_needs_no_file_and_no_file_is_a_usage_error(project):
    done = project.run("bakeoff", "--schema", as_json=True)
    assert done.json["schema"]["title"] == "engine-ci bake-off"
    assert project.run("bakeoff").code == 2


def test_a_bad_file_is_refused_with_line_and_key_path(project, servers):
    path = written(project, servers)
    Path(path).write_text(Path(path).read_text().replace("requests: 4", "requests: four"))
    done = project.run("bakeoff", path)
    assert done.code == 2
    assert "bakeoff-invalid" in done.err
    assert "load.requests" in done.err


def test_a_rule_about_the_whole_file_points_at_the_key_that_it_names(project, servers):
    path = written(project, servers)
    text = Path(path).read_text().replace("    price: {per_hour: 1.0}\n", "")
    Path(path).write_text(text)
    line = text.splitlines().index("optimise: [cost, quality]") + 1
    done = project.run("bakeoff", path)
    assert f"demo.yaml:{line}: optimise names cost: give ours a price" in done.err
    assert "`enginectl validate demo.yaml`" in done.err


def test_an_unknown_suite_is_refused_before_anything_is_asked(project, servers):
    path = written(project, servers)
    Path(path).write_text(Path(path).read_text().replace("[core]", "[other]"))
    assert project.run("bakeoff", path).code == 8


WORKLOAD = """\
schema_version: 1
name: chat
prompt_tokens: {kind: fixed, tokens: 20}
output_tokens: {kind: fixed, tokens: 4}
arrival: {kind: poisson, rate_per_s: 100}
requests: 20
"""


def test_a_lane_may_name_the_file_that_a_gates_lane_names(project, servers):
    (project.root / "workloads").mkdir()
    file = project.root / "workloads" / "chat.yaml"
    file.write_text(WORKLOAD)
    digest = load_workload(file).digest
    lane = f"{{file: workloads/chat.yaml, digest: '{digest}'}}"
    path = written(project, servers)
    bars = "ceilings: {ttft_p95_ms: 20000}, max_client_lag_ms: 20000"
    lanes = f"lanes: {{interactive: {{workload_file: {lane}, {bars}}}}}\n"
    Path(path).write_text(Path(path).read_text() + lanes)
    done = project.run("bakeoff", path, as_json=True)
    assert done.code == 0, done.err
    near = next(row for row in done.json["contestants"] if row["name"] == "near")
    [row] = near["lanes"]
    assert (row["lane"], row["digest"], row["requests"]) == ("interactive", str(digest), 20)

    file.write_text(WORKLOAD.replace("requests: 20", "requests: 21"))
    changed = project.run("bakeoff", path)
    assert changed.code == 2
    assert "workload-not-the-pinned-one" in changed.err


def test_a_suite_that_needs_a_judge_is_refused_before_anything_is_asked(project, servers):
    cases = project.root / "golden_prompts" / "core" / "cases.yaml"
    check = "{kind: judge, question: Is it yes?}"
    cases.write_text(
        "cases:\n  - {id: one, tags: [a], messages: [{role: user, content: Say yes.}], "
        f"checks: [{check}]}}\n"
    )
    done = project.run("bakeoff", written(project, servers))
    assert done.code == 2
    assert "bakeoff-without-judge" in done.err
