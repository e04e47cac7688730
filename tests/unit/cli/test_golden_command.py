"""`golden record` and `golden review` on a server that tells its template and answers as told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_pipeline.backends.port import EngineFacts, ServeCommand
from engine_pipeline.cli.wiring import Shell
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.gates.template_ask import STARTING_CHATS
from engine_pipeline.gates.template_file import load_template
from engine_pipeline.promote import release as releasing
from engine_registry.documents import canonical_json
from engine_registry.testing.samples import sample_engine
from tests.chat_world import ChatBackend
from tests.servers import template_server
from tests.unit.cli.conftest import PRODUCT

# Comments and layout as people write them, which recording must leave alone.
CASES = """\
# What nobody may break.
cases:
  - id: one
    tags: [copying]
    messages: [{role: user, content: Say yes.}]
    checks: [{kind: contains, all_of: ["yes"]}]
    recorded: { text: "yes", agreement: 1.0, n: 5 }

  # The next one has never been recorded.
  - id: two
    tags: [copying]
    messages: [{role: user, content: Say so.}]
    checks: [{kind: contains, all_of: ["so"]}]

  - id: three   # a check that is easily missed
    recorded:
      text: >-
        it is
        cold
      agreement: 1.0
      n: 5
    tags: [copying]
    messages: [{role: user, content: Is it cold?}]
    checks: [{kind: contains, all_of: [cold]}]
# the end
"""


class Telling(ChatBackend):
    """Engines whose file says how the template server behaves."""

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        says = json.dumps(facts.details["says"])
        marks = facts.details.get("marks", "chatml")
        script = str(Path(template_server.__file__))
        argv = ("{python}", script, "--port", "{port}", "--says", says, "--marks", marks)
        return ServeCommand(argv=argv, model_name="engine", health_path="/health")


@pytest.fixture
def golden(project, monkeypatch):
    (project.root / "golden_prompts" / "core" / "cases.yaml").write_text(CASES)
    lock = SimpleNamespace(
        image=None,
        spec=SimpleNamespace(
            limits=SimpleNamespace(model_dump=lambda **_: {}), serving={}, name="tiny"
        ),
    )
    monkeypatch.setattr(releasing, "lock_of", lambda registry, record: lock)
    monkeypatch.setattr(Shell, "backend", lambda self, kind: Telling())
    return project


def engine(project, **behaviour) -> str:
    data = canonical_json({"says": {}, **behaviour})
    name = str(sorted(behaviour))
    stored = sample_engine(project.registry, name, {"behaviour.json": data}, product=PRODUCT)
    return str(stored.digest)


def ran(project, action: str, of: str, *options: str) -> dict:
    done = project.run("golden", action, of, "--suite", "core", *options, as_json=True)
    assert done.code == 0, done.err
    return done.json


def texts(project) -> tuple[str, str | None]:
    folder = project.root / "golden_prompts" / "core"
    template = folder / "template.yaml"
    kept = template.read_text() if template.exists() else None
    return (folder / "cases.yaml").read_text(), kept


def recorded(project) -> dict[str, tuple[str, float, int] | None]:
    suite = load_suite(project.root / "golden_prompts", "core")
    return {
        case.id: None
        if case.recorded is None
        else (case.recorded.text, case.recorded.agreement, case.recorded.n)
        for case in suite.cases
    }


PARENT = {"says": {"Say yes.": "yes, of course", "Is it cold?": "it is cold"}}


def test_recording_writes_chats_and_the_answers_that_are_new_and_no_other_line(golden):
    parent = engine(golden, **PARENT)
    found = ran(golden, "record", parent)
    assert (found["written"], found["answers_compared"]) == (True, 2)
    kept = load_template(golden.root / "golden_prompts" / "core")
    assert kept is not None
    assert [chat.id for chat in kept.chats] == [name for name, _ in STARTING_CHATS]
    assert str(kept.reference.engine) == parent
    assert kept.special_tokens == {"<|im_start|>": 1}
    assert recorded(golden) == {
        "one": ("yes, of course", 1.0, 1),
        "two": None,
        "three": ("it is cold", 1.0, 5),  # as it was: nothing to record anew
    }
    before, after = CASES.splitlines(), texts(golden)[0].splitlines()
    own = before.index('    recorded: { text: "yes", agreement: 1.0, n: 5 }')
    assert after[:own] == before[:own]
    assert after[own : own + 4] == [
        "    recorded:",
        '      text: "yes, of course"',
        "      agreement: 1.0",
        "      n: 1",
    ]
    assert after[own + 4 :] == before[own + 1 :]
    assert ran(golden, "record", parent)["case_files_written"] == []


def test_every_case_may_be_recorded_with_how_often_its_answer_came(golden):
    says = {"Say yes.": ["yes", "yes!", "yes!"], "Say so.": "so", "Is it cold?": "cold it is"}
    ran(golden, "record", engine(golden, says=says), "--answers", "all", "--runs", "3")
    assert recorded(golden) == {
        "one": ("yes!", 0.6667, 3),
        "two": ("so", 1.0, 3),
        "three": ("cold it is", 1.0, 3),
    }
    text = texts(golden)[0]
    assert "  # The next one has never been recorded.\n  - id: two" in text
    assert "  - id: three   # a check that is easily missed" in text
    assert text.endswith("# the end\n")


def test_an_answer_that_fails_the_checks_of_its_case_is_named_and_not_recorded(golden):
    bad = engine(golden, says={"Say yes.": "no", "Is it cold?": "cold"})
    done = golden.run("golden", "record", bad, "--suite", "core")
    assert done.code == 0, done.err
    assert "not recorded, the answer fails the checks of its case: one" in done.out
    assert recorded(golden)["one"] == ("yes", 1.0, 5)
    assert recorded(golden)["three"] == ("cold", 1.0, 1)


def test_a_review_shows_what_another_engine_would_change_and_writes_nothing(golden):
    ran(golden, "record", engine(golden, **PARENT))
    before = texts(golden)
    other = engine(golden, says={"Say yes.": "no", "Is it cold?": "it is cold"}, marks="llama")
    found = ran(golden, "review", other)
    assert texts(golden) == before
    assert (found["changes"], found["written"], found["answers_compared"]) == (True, False, 2)
    assert found["other_answers"] == [
        {
            "case": "one",
            "recorded": "yes, of course",
            "now": "no",
            "agreement": 1.0,
            "passed": False,
        }
    ]
    assert any(line.startswith("+") and "[INST]" in line for line in found["diff"])
    assert any(line.startswith("-") and "<|im_start|>" in line for line in found["diff"])
    said = golden.run("golden", "review", other, "--suite", "core").out
    assert "recording this engine would change" in said
    assert "answers: 2 asked, 1 are others now" in said


def test_a_review_of_the_parent_itself_finds_nothing(golden):
    parent = engine(golden, **PARENT)
    ran(golden, "record", parent)
    found = ran(golden, "review", parent)
    assert (found["changes"], found["other_answers"], found["diff"]) == (False, [], [])
    assert ran(golden, "review", parent, "--answers", "none")["answers_compared"] == 0


def test_a_file_of_cases_in_one_line_is_left_alone_and_the_refusal_says_how_to_write_it(golden):
    flow = "{cases: [{id: one, tags: [a], messages: [{role: user, content: Say yes.}], "
    flow += 'checks: [{kind: contains, all_of: ["yes"]}], recorded: {text: "yes", agreement: 1.0, '
    flow += "n: 5}}]}\n"
    (golden.root / "golden_prompts" / "core" / "cases.yaml").write_text(flow)
    done = golden.run("golden", "record", engine(golden, **PARENT), "--suite", "core", as_json=True)
    assert done.code == 2
    assert done.json["error"]["reference"] == "case-file-layout"
    assert texts(golden) == (flow, None)
