"""`calibrate` and what `validate` makes of it, on real server processes of known behaviour."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from engine_pipeline.backends.port import EngineFacts, ServeCommand
from engine_pipeline.cli.wiring import Shell
from engine_pipeline.gates.calibration_file import calibration_path
from engine_pipeline.promote import release as releasing
from engine_registry.documents import canonical_json
from engine_registry.testing.samples import sample_engine
from tests.chat_world import ChatBackend
from tests.unit.cli.conftest import PRODUCT

CHANNELS = """\
schema_version: 1
gates:
  core:
    suite: core
    quality: {min_score: 0.9}
    performance:
      {requests: 20, concurrency: 2, output_tokens: 4, max_ttft_p95_ms: 100000}
  plain:
    suite: core
    quality: {min_score: 0.9, min_tag_score: {copying: 0.5}}
  lanes:
    suite: core
    quality: {min_score: 0.9}
    lanes:
      chat:
        workload:
          name: chat
          prompt_tokens: {kind: fixed, tokens: 12}
          output_tokens: {kind: fixed, tokens: 4}
          arrival: {kind: concurrency, steps: [1, 2]}
          requests: 20
          warmup_requests: 2
        ceilings: {ttft_p95_ms: 5000}
        slo: {max_ttft_ms: 4000}
        min_good_share: 0.8
  kin:
    suite: core
    quality: {min_score: 0.9}
    parity: {parent: prod, min_prefix_agreement: 0.5}
policies:
  - products: ["tiny/*"]
    channels:
      staging: {gates: [core]}
"""
CASES = """\
cases:
  - id: one
    tags: [copying]
    must: true
    messages: [{role: user, content: Say yes.}]
    checks: [{kind: contains, all_of: ["yes"]}]
  - id: two
    tags: [copying]
    messages: [{role: user, content: Say so.}]
    checks: [{kind: contains, all_of: ["so"]}]
"""


class Wavering(ChatBackend):
    """Engines of which every second server has forgotten its first word."""

    served = 0

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        type(self).served += 1
        command = super().serve(facts, runtime_config)
        if self.served % 2:
            return command
        forgetful = (*command.argv[:-2], "--behaviour", '{"answer": "so it is"}')
        return command.model_copy(update={"argv": forgetful})


@pytest.fixture
def judged(project, monkeypatch):
    """A project whose engines are chat servers of the behaviour in their files."""
    (project.root / "channels.yaml").write_text(CHANNELS)
    (project.root / "golden_prompts" / "core" / "cases.yaml").write_text(CASES)
    lock = SimpleNamespace(
        image=None,
        source=SimpleNamespace(files=("weights",), revision="1"),
        spec=SimpleNamespace(
            limits=SimpleNamespace(model_dump=lambda **_: {}), serving={}, name="tiny"
        ),
    )
    monkeypatch.setattr(releasing, "lock_of", lambda registry, record: lock)
    monkeypatch.setattr(Shell, "backend", lambda self, kind: ChatBackend())
    return project


def engine(project, name: str, **behaviour):
    data = canonical_json({"answer": "yes it is so", **behaviour})
    return sample_engine(project.registry, name, {"behaviour.json": data}, product=PRODUCT)


def calibrated(project, gate: str, *options: str, engine_name: str = "good") -> dict:
    stored = engine(project, engine_name)
    words = ("--engine", str(stored.digest), "--runs", "3", "--max-foreign-cpu", "100", *options)
    ran = project.run("calibrate", gate, *words, as_json=True)
    assert ran.code == 0, ran.err
    return ran.json


def test_calibrating_keeps_mean_deviation_and_n_and_validate_warns_of_bars_that_never_fail(judged):
    stored = engine(judged, "good", ttft_s=0.02, gap_s=0.005)
    ran = judged.run(
        "calibrate", "core", "--engine", str(stored.digest), "--runs", "3",
        "--max-foreign-cpu", "100", "--only", "speed", as_json=True,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    evidence = ran.json["calibration"]["bars"]["performance.max_ttft_p95_ms"]
    assert evidence["n"] == 3
    assert evidence["mean"] >= 20
    [kept] = (judged.root / "golden_prompts" / "core" / "calibration").glob("*.json")
    assert (
        json.loads(kept.read_text())["gates"]["core"]["bars"]["performance.max_ttft_p95_ms"]
        == evidence
    )
    assert ran.json["file"].endswith(kept.name)
    [policies] = [
        row
        for row in judged.run("validate", as_json=True).json["files"]
        if row["what"] == "policies"
    ]
    assert policies["problems"] == []
    assert any("max_ttft_p95_ms 100000" in text for text in policies["warnings"])
    assert "only a catastrophe fails" in judged.run("validate").out


def test_a_file_that_is_no_calibration_is_a_problem_of_the_policies(judged):
    path = calibration_path(judged.root / "golden_prompts" / "core", "some host")
    path.parent.mkdir()
    path.write_text("{}")
    ran = judged.run("validate", "channels.yaml")
    assert ran.code == 2
    assert "not a calibration" in ran.out


def test_answers_are_calibrated_on_a_gate_that_measures_no_speed(judged):
    found = calibrated(judged, "plain")["calibration"]
    assert set(found["bars"]) == {"quality.min_score", "quality.min_tag_score.copying"}
    score = found["bars"]["quality.min_score"]
    assert (score["bar"], score["mean"], score["deviation"], score["n"]) == (0.9, 1.0, 0.0, 3)
    assert score["needs"] > 100  # two cases cannot show a drop of 5 %
    assert found["cases"]["must"] == 1
    assert found["cases"]["must_fail_at_most"] == pytest.approx(1 - 0.05 ** (1 / 3), abs=1e-4)
    assert found["cases"]["unsteady"] == {}


def test_lanes_are_calibrated_step_by_step(judged):
    found = calibrated(judged, "lanes", "--only", "speed")["calibration"]
    assert set(found["bars"]) == {
        f"lanes.chat.{path} at {step}"
        for path in ("ceilings.ttft_p95_ms", "min_good_share")
        for step in (1, 2)
    }
    share = found["bars"]["lanes.chat.min_good_share at 2"]
    assert (share["mean"], share["of"], share["proposed"]) == (1.0, 20, 0.8)  # four may be lost
    assert found["cases"] is None
    assert set(found["basis"]) == {"lanes.chat"}


def test_bars_on_the_distance_from_a_parent_are_calibrated_against_that_parent(judged):
    parent = engine(judged, "parent", answer="yes it is not so")
    (judged.root / "channels.yaml").write_text(
        CHANNELS.replace("parent: prod", f"parent: {parent.digest}")
    )
    found = calibrated(judged, "kin", "--only", "parity")["calibration"]
    one = found["bars"]["parity.min_prefix_agreement"]
    assert (one["mean"], one["deviation"], one["proposed"]) == (0.5, 0.0, None)


def test_a_case_that_must_pass_and_does_so_by_chance_is_named_with_how_often(judged, monkeypatch):
    monkeypatch.setattr(Shell, "backend", lambda self, kind: Wavering())
    found = calibrated(judged, "plain")
    assert found["calibration"]["cases"]["unsteady"] == {
        "one": {"must": True, "passed": 2, "asked": 3}
    }
    assert found["calibration"]["cases"]["must_fail_at_most"] is None
    assert any("case one must pass and passed 2 of 3 times" in text for text in found["warnings"])
    said = judged.run("validate", "channels.yaml").out
    assert "case one must pass and passed 2 of 3 times" in said


def test_speed_that_others_disturbed_does_not_count_and_answers_still_do(judged, monkeypatch):
    monkeypatch.setattr("engine_pipeline.gates.calibrate.foreign_share", lambda *_: 0.9)
    stored = engine(judged, "good")
    words = ("calibrate", "core", "--engine", str(stored.digest), "--runs", "3")
    ran = judged.run(*words, as_json=True)
    assert ran.code == 0, ran.err
    assert set(ran.json["calibration"]["bars"]) == {"quality.min_score"}
    assert any("speed is not calibrated: 0 of 3 runs count" in one for one in ran.json["warnings"])
    alone = judged.run(*words, "--only", "speed", as_json=True)
    assert alone.code == 4
    assert alone.json["error"]["reference"] == "calibration-too-few-runs"


def test_a_part_that_a_gate_has_no_bars_for_is_refused_by_its_name(judged):
    stored = engine(judged, "x")
    words = ("--engine", str(stored.digest), "--only", "speed")
    ran = judged.run("calibrate", "plain", *words)
    assert ran.code == 2
    assert "gate plain has no bars on speed" in ran.err
    assert "error[gate-without-bars]" in ran.err


def test_validate_warns_of_bars_that_can_hardly_fail_though_nobody_calibrated_them(judged):
    loose = CHANNELS.replace("min_good_share: 0.8", "min_good_share: 0.05")
    (judged.root / "channels.yaml").write_text(loose)
    ran = judged.run("validate", "channels.yaml")
    assert ran.code == 0
    assert "gate lanes: lanes.chat.min_good_share 0.05: can hardly fail" in ran.out


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ("{}", "not a calibration: host_class: field required (and 1 more)"),
        ("no JSON", "not a calibration: invalid JSON: "),
    ],
)
def test_a_kept_file_that_cannot_be_added_to_is_refused_before_anything_is_measured(
    judged, kept, says
):
    found = calibrated(judged, "plain")
    path = judged.root / found["file"]
    path.write_text(kept)
    words = ("--engine", str(engine(judged, "good").digest), "--runs", "3")
    ran = judged.run("calibrate", "plain", *words)
    assert ran.code == 2
    assert says in ran.err
    assert "validation error" not in ran.err
    assert f"rm {found['file']}" in ran.err
    assert "run 1 of 3" not in ran.err


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--smallest-drop", "x"), "'x' is no number: want one from 0.1 up to 50"),
        (("--smallest-drop", "nan"), "'nan' is no number: want one from 0.1 up to 50"),
        (("--runs", "three"), "'three' is no whole number: want one from 3 up to 1000"),
        (("--miss", "21%"), "21.0 is not in the range 0.1<=x<=20"),
    ],
)
def test_what_is_no_number_is_told_what_is_wanted(judged, option, says):
    ran = judged.run("calibrate", "plain", "--engine", "x", *option)
    assert ran.code == 2
    assert says in ran.err


def test_bars_of_a_comparison_are_said_not_to_be_calibrated(judged):
    path = judged.root / "channels.yaml"
    path.write_text(
        CHANNELS.replace(
            "min_tag_score: {copying: 0.5}}\n",
            "min_tag_score: {copying: 0.5}}\n    paired: {against: prod}\n",
        )
    )
    words = ("--engine", str(engine(judged, "x").digest), "--only", "speed")
    ran = judged.run("calibrate", "plain", *words)
    assert ran.code == 2
    assert (
        "those of `paired:` are measured against the live engine and are not calibrated" in ran.err
    )


def test_a_share_that_is_none_is_told_its_form(judged):
    path = judged.root / "channels.yaml"
    path.write_text(
        CHANNELS.replace(
            "min_tag_score: {copying: 0.5}}\n",
            "min_tag_score: {copying: 0.5}}\n"
            "    paired: {against: prod, smallest_change: banana}\n",
        )
    )
    ran = judged.run("validate", "channels.yaml")
    assert 'smallest_change: found "banana", want a share such as 10% or 0.1' in ran.out


def test_passes_under_load_are_not_called_runs(judged):
    under = "    suite: core\n    under_load: {concurrency: 2}\n    quality: {min_score: 0.9, min"
    path = judged.root / "channels.yaml"
    path.write_text(CHANNELS.replace("    suite: core\n    quality: {min_score: 0.9, min", under))
    words = ("--engine", str(engine(judged, "good").digest), "--runs", "3")
    ran = judged.run("calibrate", "plain", *words)
    assert ran.code == 0, ran.err
    said = " ".join(ran.out.split())
    assert "the 1 case that must pass did in all 6 passes of 3 runs: by chance one fails" in said
