"""`suite import` and `suite export`: from a log to a suite that validates, and back."""

from __future__ import annotations

import json

ASKS = ["Capital of Japan?", "Capital of Peru?", "Capital of Japan?"]
NEW = ("--into", "golden_prompts/desk", "--owner", "helpdesk", "--model", "tiny")


def log(project, *questions: str) -> str:
    lines = [json.dumps({"messages": [{"role": "user", "content": q}], "n": 1}) for q in questions]
    path = project.root / "traffic.jsonl"
    path.write_text("\n".join(lines))
    return str(path)


def test_a_captured_log_becomes_a_suite_that_validates_and_goes_out_again(project):
    ran = project.run("suite", "import", log(project, *ASKS), *NEW)
    assert ran.code == 0, ran.err
    assert "ok 2 cases from 3 lines" in ran.out
    assert project.run("validate", "golden_prompts/desk").code == 0
    out = project.run("suite", "export", "desk").out
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["messages"][0]["content"] for line in lines} == set(ASKS)
    (project.root / "again.jsonl").write_text(out)
    again = project.run("suite", "import", "again.jsonl", "--into", "golden_prompts/desk")
    assert again.code == 0
    assert "in the suite  2" in again.out


def test_new_questions_come_beside_the_old_ones_and_edit_no_file_of_the_suite(project):
    project.run("suite", "import", log(project, *ASKS), *NEW)
    head = (project.root / "golden_prompts/desk/suite.yaml").read_text()
    more = ("suite", "import", log(project, *ASKS, "New?"), "--into", "golden_prompts/desk")
    refused = project.run(*more)
    assert refused.code == 7
    assert "captured.yaml is there already" in refused.err
    ran = project.run(*more, "--tag", "december", as_json=True)
    assert ran.json["cases"] == 1
    assert ran.json["known"] == 2
    assert (project.root / "golden_prompts/desk/suite.yaml").read_text() == head
    assert "december.yaml" in ran.json["files"][0]


def test_a_new_suite_has_an_owner_and_a_place(project):
    path = log(project, *ASKS)
    assert "name its --owner" in project.run("suite", "import", path, *NEW[:2]).err
    assert "needs --into" in project.run("suite", "import", path).err
    odd = project.run("suite", "import", path, "--into", "golden_prompts/Odd Name", *NEW[2:])
    assert odd.code == 2
    assert "'Odd Name' is no name: want small letters" in odd.err
    lost = project.run("suite", "import", path, "--into", "elsewhere/desk", *NEW[2:])
    assert lost.code == 2
    assert "gates look for suites in golden_prompts: want --into golden_prompts/desk" in lost.err
    assert not (project.root / "elsewhere").exists()


def test_what_only_an_import_takes_is_refused_with_an_export(project):
    ran = project.run("suite", "export", "core", "--into", "x", "--limit", "3")
    assert ran.code == 2
    assert "--into, --limit goes with import, not with export" in ran.err
    assert project.run("suite", "export", "core").code == 0


def test_a_log_without_a_chat_makes_no_suite(project):
    ran = project.run("suite", "import", log(project), *NEW)
    assert ran.code == 2
    assert "no line of the log could be used: it is empty" in ran.err
    assert not (project.root / "golden_prompts/desk").exists()


def test_one_is_said_as_one(project):
    ran = project.run("suite", "import", log(project, "A?"), *NEW)
    assert "ok 1 case from 1 line of" in ran.out


def test_a_secret_is_told_by_its_line_and_never_shown(project):
    key = "sk-0123456789abcdefghij"
    ran = project.run("suite", "import", log(project, "A?", f"Is {key} right?"), *NEW)
    assert ran.code == 0
    assert "line 2: looks like a secret, left out" in ran.err
    assert key not in ran.out + ran.err
    assert key not in (project.root / "golden_prompts/desk/captured.yaml").read_text()


def test_validate_warns_of_quarantines_that_are_over_and_of_code_that_is_not_here(project):
    cases = project.root / "golden_prompts/core/cases.yaml"
    cases.write_text(
        cases.read_text()
        + """\
    quarantine: {owner: Ada, until: 2020-02-29, reason: trips on dates}
  - id: two
    tags: [copying]
    messages: [{role: user, content: Say yes.}]
    checks: [{kind: python, entry_point: "nobody.has:this"}]
"""
    )
    ran = project.run("validate", "golden_prompts/core")
    assert ran.code == 0
    assert "case one: its quarantine ended on 2020-02-29 (Ada: trips on dates)" in ran.out
    assert "no installed package declares nobody.has:this as a check" in ran.out
