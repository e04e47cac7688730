"""The whole story of the TensorRT-LLM kinds, in real containers, against the stand-in's image.

Three builds of one product: FP16 on one board, FP8 on two, and the same model as a checkpoint that
needs no builder. They are built, judged, released and promoted once, and looked at from all sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.trtllm_project import (
    DRIVER,
    PROD,
    PRODUCT,
    STAGING,
    VERSION,
    GpuProject,
    containers,
    error_of,
    new_gpu_project,
    toolkit,
)
from tests.servers.dockerd import DockerDaemon

pytestmark = pytest.mark.xdist_group("docker")

PLAN = ["fetch", "checkpoint", "compile", "engine"]
QUANTISED_PLAN = ["fetch", "calibration", "checkpoint", "compile", "engine"]
TENSORRT = "10.14.1.48"


@dataclass
class Story:
    """What the commands answered, by what was built."""

    project: GpuProject
    specs: dict[str, str]
    locks: dict[str, dict[str, Any]] = field(default_factory=dict)
    builds: dict[str, dict[str, Any]] = field(default_factory=dict)
    gates: dict[str, dict[str, Any]] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    served: dict[str, Any] = field(default_factory=dict)

    def engine(self, name: str) -> str:
        found: str = self.builds[name]["engine"]
        return found

    def live(self, channel: str) -> str | None:
        """Which of the builds is live."""
        (state,) = self.project.ok("status", channel)["channels"]
        if state["release"] is None:
            return None
        engine = state["release"]["content"]["engine"]
        return next(name for name in self.builds if self.engine(name) == engine)

    def tell(self, name: str) -> None:
        """Build, judge, release and promote one of them."""
        project = self.project
        self.builds[name] = project.ok("build", self.specs[name])
        self.gates[name] = project.ok("gate", self.engine(name))
        self.releases[name] = project.ok("release", self.engine(name))["name"]
        for channel in ("staging", "prod"):
            assert project.ok("promote", self.releases[name], "--to", channel)["changed"]


def write_specs(project: GpuProject) -> dict[str, str]:
    image = toolkit("trtllm")
    calibration = {
        "source": "file://../../calibration",
        "revision": "v1",
        "samples": 64,
        "max_tokens": 128,
    }
    fp8 = {"weights": "fp8", "kv_cache": "fp8"}
    return {
        "fp16": project.spec("h100-sxm-80gb-fp16", image=image),
        "fp8": project.spec(
            "h100-sxm-80gb-fp8",
            image=image,
            precision=fp8,
            calibration=calibration,
            target__parallelism={"tensor": 2},
        ),
        "checkpoint": project.spec(
            "h100-sxm-80gb-fp8-checkpoint",
            image=image,
            precision=fp8,
            model__source="file://../../models/quantised",
            backend__kind="trtllm-checkpoint",
        ),
        "nonsense": project.spec(
            "h100-sxm-80gb-fp8-nonsense",
            image=toolkit("trtllm-nonsense", json.dumps({"answers": [["", "no idea"]]})),
            precision=fp8,
            model__source="file://../../models/quantised",
            backend__kind="trtllm-checkpoint",
        ),
    }


@pytest.fixture(scope="module")
def story(docker_daemon: DockerDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    if not docker_daemon.publishes_ports:
        pytest.skip("this machine cannot make a bridge")
    project = new_gpu_project(tmp_path_factory.mktemp("trtllm") / "project", docker_daemon)
    told = Story(project, write_specs(project))
    locks = project.ok("lock", *told.specs.values())["locks"]
    told.locks = dict(zip(told.specs, locks, strict=True))
    for name in ("fp16", "fp8", "checkpoint"):
        told.tell(name)
    yield told
    assert containers(docker_daemon) == []
    project.close()


def test_the_lock_pins_the_image_and_the_plan_shows_every_step_before_anything_runs(story):
    lock = json.loads((story.project.root / story.locks["fp16"]["lock"]).read_text())
    assert lock["image"]["reference"].endswith(f":{VERSION}")
    assert lock["image"]["digest"].startswith("sha256:")
    assert lock["shape"]["layers"] == 2
    planned = story.project.ok("plan", story.specs["fp8"])
    assert [step["name"] for step in planned["plan"]["steps"]] == QUANTISED_PLAN


def test_every_step_of_a_build_runs_once_and_a_second_build_is_the_same_engine(story):
    first = story.builds["fp16"]
    assert [(step["name"], step["reused"]) for step in first["steps"]] == [
        (name, False) for name in PLAN
    ]
    again = story.project.ok("build", story.specs["fp16"])
    assert (again["engine"], again["reused"]) == (first["engine"], "engine")


def test_another_precision_shares_the_fetched_model_and_nothing_else(story):
    steps = {step["name"]: step for step in story.builds["fp8"]["steps"]}
    assert list(steps) == QUANTISED_PLAN
    assert [name for name, step in steps.items() if step["reused"]] == ["fetch"]
    # What steps in containers took is measured there.
    assert steps["compile"]["wall_s"] > 0


@pytest.mark.parametrize(("name", "ranks"), [("fp16", 1), ("fp8", 2)])
def test_an_engine_says_what_it_was_built_with_and_has_a_plan_per_rank(story, name, ranks):
    facts = story.project.ok("inspect", story.engine(name))["facts"]
    assert facts["kind"] == "trtllm-engine"
    assert facts["runtime"] == {"tensorrt": TENSORRT, "tensorrt_llm": VERSION}
    assert facts["details"]["tensor"] == ranks
    plans = [file["path"] for file in facts["files"] if file["path"].endswith(".engine")]
    assert plans == [f"rank{rank}.engine" for rank in range(ranks)]
    assert "tokenizer/tokenizer.json" in {file["path"] for file in facts["files"]}


def test_a_checkpoint_is_an_engine_whose_files_bind_image_and_settings(story):
    facts = story.project.ok("inspect", story.engine("checkpoint"))["facts"]
    assert facts["kind"] == "trtllm-checkpoint"
    assert {"runtime.json", "serving.yaml"} <= {file["path"] for file in facts["files"]}
    # No builder ran: the toolkit's image is needed only to serve it.
    assert "compile" not in [step["name"] for step in story.builds["checkpoint"]["steps"]]


def test_the_record_has_the_platform_that_no_file_of_the_engine_proves(story):
    shown = story.project.ok("show", story.engine("fp8"))
    platform = shown["records"][0]["platform"]
    assert (platform["sku"], platform["sm"]) == ("h100-sxm-80gb", 90)
    assert platform["parallelism"]["tensor"] == 2
    assert platform["runtime"] == {"tensorrt": TENSORRT, "tensorrt_llm": VERSION}


def test_what_the_toolkit_said_is_kept_and_names_its_version(story):
    logs = story.project.logs()
    assert f"TensorRT-LLM version: {VERSION}" in logs
    assert "building 2 ranks with 2 workers on SM 90" in logs
    assert "Total time of building all engines" in logs


@pytest.mark.parametrize("name", ["fp16", "fp8", "checkpoint"])
def test_a_gate_asks_a_server_in_its_container_and_attaches_what_it_found(story, name):
    gate = story.gates[name]
    assert gate["outcome"] == "passed"
    report = story.project.ok("show", story.engine(name), "--report")["report"]
    assert report["engine"] == story.engine(name)
    assert report["load"]["load_s"] > 0
    assert [case["outcome"] for case in report["cases"]] == ["passed", "passed"]
    assert report["performance"]["metrics"]
    assert report["device"]["sku"] == "h100-sxm-80gb"


def test_a_gate_that_finds_no_daemon_judges_nothing_and_is_worth_a_retry(story):
    nowhere = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    before = story.project.ok("show", story.engine("fp16"))["attached"]
    code, error = story.project.failure("gate", story.engine("fp16"), "--again", **nowhere)
    assert (code, error["reference"]) == (9, "docker-not-running")
    assert story.project.ok("show", story.engine("fp16"))["attached"] == before
    # What was judged before counts without a daemon.
    assert story.project.run("gate", story.engine("fp16"), **nowhere).json["gates"][0]["reused"]


def test_the_image_that_was_built_in_is_not_pulled_again_to_serve(story):
    again = story.project.run("gate", story.engine("fp16"), "--again")
    assert again.code == 0, again.err
    assert "pull" not in again.err


def test_a_release_moves_the_serving_image_with_the_engine(story):
    names = [story.releases[name] for name in ("fp16", "fp8", "checkpoint")]
    assert names == [f"{PRODUCT}:1", f"{PRODUCT}:2", f"{PRODUCT}:3"]
    lock = json.loads((story.project.root / story.locks["fp8"]["lock"]).read_text())
    content = story.project.ok("show", names[1])["release"]["content"]
    assert content["serving_image"].endswith(f"@{lock['image']['digest']}")
    assert content["kind"] == "trtllm-engine"
    assert len(content["evidence"]) == 1


def test_one_kind_follows_the_other_on_the_same_channel_and_the_log_says_so(story):
    project = story.project
    changed = {
        row["what"]
        for row in project.ok("diff", story.releases["fp8"], story.releases["checkpoint"])[
            "changed"
        ]
    }
    assert {"engine", "backend.kind"} <= changed
    events = project.ok("history", STAGING)["events"]
    assert [event["change"]["kind"] for event in events] == ["promoted"] * 3


def test_the_gates_decide_whether_a_checkpoint_takes_over(story):
    project = story.project
    engine = project.ok("build", story.specs["nonsense"])["engine"]
    judged = project.run("gate", engine)
    assert judged.code == 3, judged.err
    assert judged.json["outcome"] == "failed"
    assert any("capital-of-france" in reason for reason in judged.json["gates"][0]["reasons"])
    release = project.ok("release", engine)["name"]
    refused = project.run("promote", release, "--to", "staging")
    assert refused.code == 3
    assert "short" in error_of(refused)["message"]
    assert story.live(STAGING) == "checkpoint"


def test_prod_goes_back_to_the_compiled_engine_and_every_digest_is_right(story):
    project = story.project
    assert story.live(PROD) == "checkpoint"
    back = project.ok("rollback", PROD, "--reason", "the tail got longer")
    assert back["changed"]
    assert story.live(PROD) == "fp8"
    further = project.ok("rollback", PROD, "--to", story.engine("fp16")[:19], "--reason", "FP8 too")
    assert further["changed"]
    assert story.live(PROD) == "fp16"
    assert story.live(STAGING) == "checkpoint"
    kinds = [event["change"]["kind"] for event in project.ok("history", PROD)["events"]]
    assert kinds == ["promoted"] * 3 + ["rolled-back"] * 2
    assert project.ok("verify")["ok"]


def test_the_engine_fits_this_machine_and_its_own_kind_of_node_only(story):
    project, engine = story.project, story.engine("fp8")
    here = project.ok("check", engine)
    assert here["fits"]
    assert {"sku", "sm", "world-size", "driver", "tensorrt", "tensorrt-llm"} <= {
        rule["rule"] for rule in here["rules"]
    }
    refused = project.run("check", engine, "--node", str(node_file(project, "NVIDIA H200", 143771)))
    assert refused.code == 6
    broken = {rule["rule"]: rule for rule in refused.json["rules"] if not rule["holds"]}
    # Same capability: it would load there with a warning.
    assert {"sku", "world-size"} <= set(broken)
    assert not {"sm", "driver", "tensorrt", "tensorrt-llm"} & set(broken)
    assert "same SM 90" in broken["sku"]["says"]


def node_file(
    project: GpuProject, name: str, memory_mib: int, boards: int = 2, **more: str
) -> Path:
    """A description of a node with such boards."""
    board = {"name": name, "sm": 90, "memory_mib": memory_mib}
    described = {
        "schema_version": 1,
        "name": "gpu-07",
        "architecture": "x86_64",
        "driver": DRIVER,
        "tensorrt": TENSORRT,
        "tensorrt_llm": VERSION,
        "gpus": [board] * boards,
    }
    path = project.root / f"node-{len(list(project.root.glob('node-*')))}.json"
    path.write_text(json.dumps(described | more))
    return path


def test_a_directory_is_made_to_serve_what_was_promoted_and_is_read_back(story):
    project = story.project
    place = project.root / "srv"
    target = f"directory:{place}"
    node = node_file(project, "NVIDIA H100 80GB HBM3", 81559)
    too_old = node_file(project, "NVIDIA H100 80GB HBM3", 81559, tensorrt_llm="1.1.0")
    assert project.ok("promote", story.releases["fp8"], "--to", "staging")["changed"]

    refused = project.run("deploy", STAGING, "--target", target, "--node", str(too_old))
    assert (refused.code, error_of(refused)["reference"]) == (6, "rule-tensorrt-llm")
    assert not (place / "current").exists()

    (done,) = project.ok("deploy", STAGING, "--target", target, "--node", str(node))["targets"]
    assert done["changed"]
    assert done["after"]["deployment"]["release"]["content"]["engine"] == story.engine("fp8")
    serve = json.loads((place / "current" / "serve.json").read_text())
    release = project.ok("show", story.releases["fp8"])["release"]["content"]
    assert serve["serving_image"] == release["serving_image"]
    assert serve["gpus"] == 2
    assert serve["argv"][:2] == ["trtllm-serve", "{engine}"]
    # Without it the server would take the engine for a checkpoint.
    assert serve["argv"][serve["argv"].index("--backend") + 1] == "tensorrt"
    assert (place / "current" / "engine" / "rank1.engine").stat().st_size > 0
    (looked,) = project.ok("drift", STAGING, "--target", target, "--deep")["targets"]
    assert looked["differences"] == []

    assert project.ok("promote", story.releases["checkpoint"], "--to", "staging")["changed"]
    assert project.run("drift", STAGING, "--target", target).code == 10
    assert project.ok("deploy", STAGING, "--target", target)["targets"][0]["changed"]
    assert (place / "current" / "engine" / "serving.yaml").exists()
    assert project.run("drift", STAGING, "--target", target).code == 0
