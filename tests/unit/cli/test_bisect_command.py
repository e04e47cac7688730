"""`bisect` on toy models that llama.cpp's own builder builds; a stand-in serves what was built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.backends.llama_cpp.runtime import SUPPORTED_RUNTIME
from engine_pipeline.backends.port import EngineFacts, ServeCommand
from engine_pipeline.cli import judging
from engine_pipeline.cli.wiring import Shell
from engine_registry.digest import Digest
from tests.unit.backends.conftest import Toy, write_gguf

FOLDER = "build_specs/tiny"
GOOD, BAD = f"{FOLDER}/cpu-x86-64-v3-int8.yaml", f"{FOLDER}/cpu-x86-64-v3-int4.yaml"
INPUTS = {
    "precision",
    "limits.max_batch_size",
    "limits.max_batch_tokens",
    "limits.max_input_tokens",
}


class Bench(LlamaCppBackend):
    """Builds as llama.cpp does; an engine with Q4_0 in it answers no, every other one yes."""

    served: list[str]

    def __init__(self) -> None:
        self.served = []

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        self.served.append(",".join(sorted(facts.tensor_types)))
        answer = "no it is not so" if "Q4_0" in facts.tensor_types else "yes it is so"
        return ServeCommand(
            argv=(
                "{python}", "-m", "engine_pipeline.gates.testing.chat_server",
                "--port", "{port}", "--behaviour", json.dumps({"answer": answer}),
            ),
            model_name="engine",
        )  # fmt: skip


@pytest.fixture
def bench(project, monkeypatch) -> Bench:
    """Two locked specs that differ in four inputs."""
    made = Bench()
    monkeypatch.setattr(Shell, "backend", lambda self, kind: made)
    folder = project.root / FOLDER
    (folder / "model").mkdir(parents=True)
    write_gguf(folder / "model" / "toy.gguf", Toy())
    limits = {
        "max_batch_size": 4,
        "max_input_tokens": 256,
        "max_sequence_tokens": 512,
        "max_batch_tokens": 512,
    }
    smaller = {"max_batch_size": 2, "max_input_tokens": 128, "max_batch_tokens": 256}
    write_spec(project.root / GOOD, {"weights": "int8"}, limits)
    write_spec(project.root / BAD, {"weights": "int4", "recipe": "q4_0"}, limits | smaller)
    assert project.run("lock", GOOD, BAD).code == 0
    return made


def write_spec(path: Path, precision: dict[str, str], limits: dict[str, int]) -> None:
    spec = {
        "schema_version": 1,
        "model": {"name": "tiny", "source": "file://model", "revision": "one"},
        "target": {"sku": "cpu-x86-64-v3"},
        "precision": precision,
        "backend": {"kind": "llama-cpp", "version": SUPPORTED_RUNTIME},
        "limits": limits,
        "suites": ["core"],
    }
    path.write_text(json.dumps(spec))


def builds(project) -> int:
    """Records: limits are in the key of such an engine and not in its bytes."""
    registry = project.registry
    found = project.run("list", as_json=True).json["engines"]
    return sum(len(registry.engines.records(Digest.parse(one["engine"]))) for one in found)


def test_the_culprit_is_found_with_stored_builds_and_after_an_interruption(
    project, bench, monkeypatch
):
    built = project.run("build", GOOD, as_json=True)
    assert built.code == 0, built.err
    real, asked = judging.judge, []

    def stopped_at_the_third(*args, **kwargs):
        asked.append(args)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(judging, "judge", stopped_at_the_third)
        assert project.run("bisect", GOOD, BAD, as_json=True).code != 0
    assert (len(bench.served), builds(project)) == (2, 3)  # both ends judged, a third built

    ran = project.run("bisect", GOOD, BAD, as_json=True)
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["suspects"] == ["precision"]
    assert (found["before"], found["alone"]) == ([], "yes")
    assert {change["name"] for change in found["changes"]} == INPUTS
    first, last, *between = found["tries"]
    assert (first["changes"], first["verdict"], first["engine"]) == (
        [], "good", built.json["engine"],
    )  # fmt: skip
    assert set(last["changes"]) == INPUTS
    assert [(one["changes"], one["verdict"]) for one in between] == [
        (["precision", "limits.max_batch_size"], "bad"),
        (["precision"], "bad"),
    ]
    # What the first run had built and judged was neither built nor judged again.
    assert ran.err.count("reused report") == 2
    assert len(bench.served) == 4
    assert builds(project) == 4

    again = project.run("bisect", GOOD, BAD)
    assert (len(bench.served), builds(project)) == (4, 4)
    assert "precision is to blame: precision.recipe" in again.out
    assert "it is bad by itself" in again.out


def test_a_plan_counts_the_ends_that_still_have_to_be_built(project, bench):
    plan = project.run("bisect", GOOD, BAD, "--plan", as_json=True).json
    assert {change["name"] for change in plan["changes"]} == INPUTS
    assert (plan["ends_built"], plan["most_between"], plan["most_builds"]) == (0, 3, 5)
    assert project.run("build", GOOD).code == 0
    said = project.run("bisect", GOOD, BAD, "--plan").out
    assert "4 inputs to try; to build: the other end and at most 3 states between them" in said
    assert bench.served == []


def test_a_plan_for_one_input_builds_both_ends(project, bench):
    spec = json.loads((project.root / GOOD).read_text())
    spec["limits"]["max_batch_size"] = 2
    (project.root / BAD).write_text(json.dumps(spec))
    assert project.run("lock", BAD).code == 0
    ran = project.run("bisect", GOOD, BAD, "--plan")
    assert "1 input to try; to build: both ends\n" in ran.out
    plan = project.run("bisect", GOOD, BAD, "--plan", as_json=True).json
    assert (plan["most_between"], plan["most_builds"]) == (0, 2)


def test_a_driver_that_the_ends_were_built_under_is_named_as_untried(project, bench, monkeypatch):
    """As records of GPU engines say it; nothing on this machine can change it."""
    from engine_pipeline.cli import locked

    real = locked.lock_named
    drivers = {GOOD: {"driver": "570.86.15"}, BAD: {"driver": "590.44.01"}}
    monkeypatch.setattr(
        locked, "lock_named", lambda shell, text: (real(shell, text)[0], drivers[text])
    )
    said = "differs too, cannot be changed here: driver 570.86.15 → 590.44.01"
    assert said in project.run("bisect", GOOD, BAD, "--plan").out
    ran = project.run("bisect", GOOD, BAD)
    assert ran.code == 0, ran.err
    assert said in ran.out
    same = project.run("bisect", GOOD, GOOD)
    assert same.code == 2
    assert "nothing of the engine differs" in same.err


@pytest.mark.parametrize("how", [(), ("--plan",)])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--gate", "nope"), "no gate 'nope' in channels.yaml; there are core"),
        (("--case", "nope"), "--case: suite core has no case 'nope'; it has one"),
        (("--gate", "core", "--case", "onne"), "has no case 'onne'; did you mean one?; it has one"),
        (("--bar", "nope"), "--bar: a report of gate core has no line 'nope'; it has load, finite"),
        (("--bar", "ttft_p95_ms"), "has no line 'ttft_p95_ms'"),
    ],
)
def test_what_it_cannot_be_judged_by_is_refused_before_anything_is_built(
    project, bench, options, says, how
):
    ran = project.run("bisect", GOOD, BAD, *options, *how)
    assert ran.code == 2
    assert says in ran.err
    assert "GOOD" not in ran.err
    assert not (project.root / "engines").exists()


def test_without_policies_it_ends_before_the_first_end_is_built(project, bench):
    (project.root / "channels.yaml").rename(project.root / "elsewhere.yaml")
    ran = project.run("bisect", GOOD, BAD, "--gate", "core")
    assert ran.code == 8
    assert "channels.yaml does not exist" in ran.err
    assert not (project.root / "engines").exists()


def test_every_line_that_a_report_can_be_judged_by_is_taken(project, bench):
    ran = project.run("bisect", GOOD, BAD, "--bar", "degenerate answers", as_json=True)
    assert "could not" not in ran.err
    assert "BAD is good by degenerate answers" in ran.err
