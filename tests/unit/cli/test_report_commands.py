"""Reports in every form, from the registry alone; and what a GitHub job is told."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from engine_pipeline.gates.annotations import SUMMARY_LIMIT_BYTES
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import QualityBars
from engine_registry.testing.samples import sample_engine, sample_release
from tests.unit.cli.conftest import POLICY, PRODUCT, Project


@pytest.fixture
def judged(project: Project) -> str:
    """An engine with a stored report that failed; its digest."""
    engine = sample_engine(project.registry, "candidate", product=PRODUCT)
    project.report(engine.digest, Outcome.FAILED)
    return str(engine.digest)


@pytest.fixture
def job(project: Project, monkeypatch: pytest.MonkeyPatch):
    """The same command line inside a GitHub job; the file of its summary."""
    summary = project.root / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def gate(project: Project, engine: str, *options: str, as_json: bool = False):
    """A stored report decides, so nothing is judged anew."""
    return project.run("gate", engine, *options, as_json=as_json)


@pytest.fixture(autouse=True)
def _on_the_host_that_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Device

    device = Device(sku=PRODUCT.target, host_class="test", cpu_model="test", cores=1)
    monkeypatch.setattr(Shell, "device", lambda self, record: device)


def test_show_prints_each_form(project, judged):
    assert project.run("show", judged, "--report").out.startswith("# FAILED: gate core")
    page = project.run("show", judged, "--report", "--format", "html").out
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert "No baseline" in page
    xml = project.run("show", judged, "--format", "junit").out
    assert ET.fromstring(xml.encode()).get("failures") == "1"
    stored = json.loads(project.run("show", judged, "--format", "json").out)
    assert stored == project.run("show", judged, "--report", as_json=True).json["report"]


def test_a_form_and_a_document_at_once_are_refused(project, judged):
    ran = project.run("show", judged, "--format", "html", as_json=True)
    assert ran.code == 2
    assert "--output json holds the whole report" in json.dumps(ran.json)


def test_the_schemas_are_printed(project):
    assert (
        project.run("validate", "--schema").out == project.run("validate", "--schema", "spec").out
    )
    schema = json.loads(project.run("validate", "--schema", "report").out)
    assert schema["title"] == "engine-ci gate report"


def test_gate_writes_each_file_by_its_suffix(project, judged):
    names = ("r.html", "r.md", "r.json", "r.xml")
    options = [option for name in names for option in ("--report", str(project.root / name))]
    ran = gate(project, judged, *options, "--junit", str(project.root / "junit.out"), as_json=True)
    assert ran.code == 3
    assert ran.json["files"] == [str(project.root / name) for name in (*names, "junit.out")]
    html, markdown, plain, xml = ((project.root / name).read_text() for name in names)
    assert html.startswith("<!doctype html>")
    assert markdown.startswith("# FAILED")
    assert json.loads(plain)["outcome"] == "failed"
    assert xml == (project.root / "junit.out").read_text()
    assert not list(project.root.glob(".r.*"))


def test_a_second_run_replaces_the_file(project, judged):
    path = project.root / "r.md"
    path.write_text("old")
    assert gate(project, judged, "--report", str(path)).code == 3
    assert path.read_text().startswith("# FAILED")
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("name", "said"),
    [("r.pdf", "the suffix picks the form"), ("gone/r.html", "no directory"), (".", "suffix")],
)
def test_a_file_that_cannot_be_written_is_refused_before_judging(project, judged, name, said):
    ran = gate(project, judged, "--report", str(project.root / name))
    assert ran.code == 2
    assert said in ran.err


def test_two_gates_do_not_fit_on_one_page(project, judged):
    text = (project.root / "channels.yaml").read_text()
    two = text.replace("policies:", "  more: {suite: core, quality: {min_score: 0.8}}\npolicies:")
    (project.root / "channels.yaml").write_text(two)
    options = ("--gate", "core", "--gate", "more")
    ran = gate(project, judged, *options, "--report", str(project.root / "r.html"))
    assert ran.code == 2
    assert "holds one report, 2 gates are asked for" in ran.err


def test_what_was_live_then_is_the_baseline_whatever_is_live_now(project):
    first = project.release("first")
    assert project.run("promote", str(first.name), "--to", "staging").code == 0
    candidate = sample_engine(project.registry, "second", product=PRODUCT)
    project.report(candidate.digest, Outcome.PASSED, hours_ago=0)
    name = str(candidate.digest)
    page = project.run("show", name, "--format", "html").out
    assert f"Live is {PRODUCT}/staging, release 1" in page
    second = sample_release(project.registry, candidate, product=PRODUCT)
    assert project.run("promote", str(second.name), "--to", "staging").code == 0
    assert project.run("show", name, "--format", "html").out == page


def test_the_channel_nearest_to_users_is_the_baseline(project):
    for name in ("old", "new"):
        release = project.release(name)
        assert project.run("promote", str(release.name), "--to", "staging").code == 0
        if name == "old":
            assert project.run("promote", str(release.name), "--to", "prod").code == 0
    candidate = sample_engine(project.registry, "third", product=PRODUCT)
    project.report(candidate.digest, Outcome.PASSED, hours_ago=-1)
    page = project.run("show", str(candidate.digest), "--format", "html").out
    assert f"Live is {PRODUCT}/prod, release 1" in page


def test_a_live_engine_that_was_never_judged_so_is_no_baseline(project):
    release = project.release("first")
    assert project.run("promote", str(release.name), "--to", "staging").code == 0
    harder = (project.root / "channels.yaml").read_text().replace("0.9", "0.95")
    (project.root / "channels.yaml").write_text(harder)
    policy = POLICY.model_copy(update={"quality": QualityBars(min_score=0.95)})
    candidate = sample_engine(project.registry, "second", product=PRODUCT)
    project.report(candidate.digest, Outcome.PASSED, hours_ago=-1, policy=policy)
    page = project.run("show", str(candidate.digest), "--format", "html").out
    assert f"was live on {PRODUCT}/staging, release 1, and has no report of its own" in page


def test_before_anything_was_live_there_is_no_baseline(project):
    early = sample_engine(project.registry, "early", product=PRODUCT)
    project.report(early.digest, Outcome.PASSED, hours_ago=48)
    release = project.release("first")
    assert project.run("promote", str(release.name), "--to", "staging").code == 0
    page = project.run("show", str(early.digest), "--format", "html").out
    assert f"No baseline</strong>: nothing was live on {PRODUCT}/" in page


def test_outside_a_github_job_nothing_is_added(project, judged):
    ran = gate(project, judged)
    assert "::" not in ran.out + ran.err


def test_a_github_job_gets_annotations_and_a_summary(project, judged, job):
    job.write_text("before\n")
    ran = gate(project, judged)
    assert ran.code == 3
    first, stop, *_, resume = ran.out.splitlines()
    assert first == "::error title=core%3A Score%2C all cases failed::as the test says"
    token = stop.removeprefix("::stop-commands::")
    assert resume == f"::{token}::"
    assert len(token) == 32
    assert job.read_text().startswith("before\n# FAILED: gate core")


def test_the_document_of_a_github_job_stays_one_document(project, judged, job):
    ran = gate(project, judged, as_json=True)
    assert ran.json["outcome"] == "failed"
    assert "::error title=core%3A Score" in ran.err


def test_a_full_summary_is_left_as_it_is(project, judged, job):
    job.write_bytes(b"x" * SUMMARY_LIMIT_BYTES)
    assert gate(project, judged).code == 3
    assert job.stat().st_size == SUMMARY_LIMIT_BYTES


def test_a_summary_that_cannot_be_written_fails_nothing(project, judged, job):
    job.mkdir()
    ran = gate(project, judged)
    assert ran.code == 3
    assert "summary cannot be written" in ran.err
