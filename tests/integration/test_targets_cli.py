"""`enginectl deploy` and `enginectl drift` as people and timers run them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_pipeline.cli.app import run
from engine_pipeline.cli.wiring import Shell
from engine_pipeline.targets.tree import Tree
from engine_registry import layout
from tests.servers.triton import Fault
from tests.unit.targets.gpu_engines import SKU, TENSORRT, VERSION, backend_for
from tests.unit.targets.triton_yard import SEEN_AS, TritonYard
from tests.unit.targets.yard import PROD, Yard, memory_dir

CHANNEL = str(PROD)
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@dataclass
class Desk:
    """The command line in this process, in a project directory of its own."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *args: str) -> Ran:
        self.capsys.readouterr()
        code = run(args)
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def targets(self, **targets: dict[str, object]) -> None:
        document = {"schema_version": 1, "targets": targets}
        (self.root / "targets.yaml").write_text(json.dumps(document))


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


@pytest.fixture
def desk(fast_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Desk:
    monkeypatch.chdir(fast_dir)
    monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{fast_dir}/engines")
    monkeypatch.setenv("ENGINECTL_ACTOR", "dora")
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "ENGINECTL_CHANNELS", "ENGINECTL_TARGETS"):
        monkeypatch.delenv(name, raising=False)
    return Desk(fast_dir, capsys)


@pytest.fixture
def yard(fast_dir: Path) -> Yard:
    return Yard(fast_dir)


def directory(desk: Desk, name: str, channel: str = CHANNEL, **more: object) -> dict[str, object]:
    return {"kind": "directory", "channel": channel, "path": f"{desk.root}/{name}", **more}


def test_a_directory_can_be_named_on_the_command_line(desk: Desk, yard: Yard):
    yard.promote(yard.release("a"))
    target = f"directory:{yard.place}"
    done = desk.run("deploy", CHANNEL, "--target", target)
    assert done.code == 0, done.err
    assert f"ok {target} serves release 1" in done.out
    again = desk.run("deploy", CHANNEL, "--target", target)
    assert again.code == 0
    assert again.out.startswith("unchanged")
    same = desk.run("drift", CHANNEL, "--target", target, "--deep")
    assert same.code == 0
    assert same.out.startswith("ok")


def test_drift_is_exit_10_with_both_sides_and_the_way_out(desk: Desk, yard: Yard):
    target = f"directory:{yard.place}"
    yard.promote(yard.release("a"))
    desk.run("deploy", CHANNEL, "--target", target)
    yard.promote(yard.release("b"))
    found = desk.run("drift", CHANNEL, "--target", target)
    assert found.code == 10
    assert "tiny/cpu-x86-64-v3:2" in found.out
    assert "tiny/cpu-x86-64-v3:1" in found.out
    assert f"next: `enginectl deploy {CHANNEL} --target {target}`" in found.out


def test_damaged_files_are_exit_11_and_the_way_out_heals_them(desk: Desk, yard: Yard):
    target = f"directory:{yard.place}"
    yard.promote(yard.release("a"))
    desk.run("deploy", CHANNEL, "--target", target)
    file = (yard.place / "current/engine/model.gguf").resolve()
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-1] + b"!")
    assert desk.run("drift", CHANNEL, "--target", target).code == 0
    found = desk.run("drift", CHANNEL, "--target", target, "--deep")
    assert found.code == 11
    (command,) = re.findall(r"next: `enginectl (.*?)`", found.out)
    assert "--deep" in command
    assert desk.run(*shlex.split(command)).code == 0
    assert desk.run("drift", CHANNEL, "--target", target, "--deep").code == 0


def test_every_target_of_a_channel_is_deployed_and_looked_at(desk: Desk, yard: Yard):
    yard.promote(yard.release("a"))
    yard.promote(yard.release("b"), "staging")
    desk.targets(
        one=directory(desk, "one"),
        two=directory(desk, "two"),
        other=directory(desk, "other", CHANNEL.replace("prod", "staging")),
    )
    done = desk.run("deploy", CHANNEL, "--output", "json")
    assert done.code == 0, done.err
    assert [(t["target"], t["changed"]) for t in done.json["targets"]] == [
        ("one", True),
        ("two", True),
    ]
    assert not (desk.root / "other").exists()
    looked = desk.run("drift", "--output", "json")
    assert looked.code == 10
    assert [(t["target"], len(t["differences"])) for t in looked.json["targets"]] == [
        ("one", 0),
        ("two", 0),
        ("other", 1),
    ]
    assert desk.run("deploy", "--target", "other").code == 0
    assert desk.run("drift").code == 0


def test_the_first_target_that_cannot_be_done_ends_it_and_says_what_is_left(desk: Desk, yard: Yard):
    yard.promote(yard.release("a"))
    desk.targets(**{name: directory(desk, name) for name in ("one", "two", "three")})
    (desk.root / "two").write_text("in the way")
    done = desk.run("deploy", CHANNEL)
    assert done.code == 9
    assert "target two:" in done.err
    assert "done before: one; not: three" in done.err
    assert not (desk.root / "three").exists()


def test_one_target_that_cannot_be_compared_does_not_hide_the_others(desk: Desk, yard: Yard):
    yard.promote(yard.release("a"))
    triton = {
        "kind": "triton",
        "channel": CHANNEL,
        "path": f"{desk.root}/gone",
        "url": "http://127.0.0.1:9",
        "templates": f"{desk.root}/templates",
    }
    desk.targets(one=directory(desk, "one"), gone=triton)
    desk.run("deploy", "--target", "one")
    looked = desk.run("drift")
    assert looked.code == 6  # a llama-cpp engine is nothing for Triton, and nothing else differs
    assert "ok one serves release 1" in looked.out
    assert "errored gone could not be compared" in looked.out
    yard.promote(yard.release("b"))
    assert desk.run("drift").code == 10


def test_an_engine_for_another_board_is_refused_before_anything_is_touched(desk: Desk):
    yard = TritonYard(desk.root)
    yard.promote(yard.engine_release("a"))
    done = desk.run("deploy", str(yard.channel), "--target", f"directory:{desk.root}/srv")
    assert done.code == 6
    assert "error[rule-sku]" in done.err
    assert not (desk.root / "srv" / "current").exists()


def test_a_node_is_described_by_a_file(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Shell, "backend", lambda shell, kind: backend_for(kind))
    yard = TritonYard(desk.root)
    node = {
        "name": "h100-a",
        "architecture": "x86_64",
        "driver": "590.44.01",
        "tensorrt": ".".join(map(str, TENSORRT)),
        "tensorrt_llm": VERSION,
        "gpus": [{"name": "NVIDIA H100 80GB HBM3", "sm": 90, "memory_mib": 81559}],
    }
    (desk.root / "node.json").write_text(json.dumps(node))
    (desk.root / "old.json").write_text(json.dumps(node | {"tensorrt_llm": "1.1.0"}))
    yard.promote(yard.engine_release("a"))
    with yard.serving() as server:
        triton = {
            "kind": "triton",
            "channel": str(yard.channel),
            "path": str(yard.place),
            "seen_as": SEEN_AS,
            "url": server.url,
            "templates": str(yard.templates),
            "node": "node.json",
        }
        desk.targets(here=triton)
        old = desk.run("deploy", "--target", "here", "--node", "old.json")
        assert old.code == 6
        assert "TensorRT-LLM 1.2.1, the node serves with 1.1.0" in old.err
        server.faults = [Fault("generate", "ensemble", "empty")]
        failed = desk.run("deploy", "--target", "here")
        assert failed.code == 3
        assert "error[triton-prompt-failed]" in failed.err
        done = desk.run("deploy", "--target", "here", "--output", "json")
        assert done.code == 0, done.err
        (target,) = done.json["targets"]
        assert target["after"]["deployment"]["release"]["content"]["platform"]["sku"] == SKU
        assert {finding["rule"] for finding in target["findings"]} >= {"sm", "tensorrt-llm"}
        assert yard.answers() == 1


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["deploy"], 2, "name a channel, a target, or both"),
        (["deploy", CHANNEL], 8, "targets.yaml"),
        (["deploy", CHANNEL, "--target", "directory:relative"], 2, "not an absolute path"),
        (["deploy", "--target", "directory:/srv/x"], 2, "which channel"),
        (["drift"], 8, "targets.yaml"),
        (["deploy", "no/channel"], 2, "MODEL/TARGET/CHANNEL"),
    ],
)
def test_what_is_not_said_well_is_refused_with_the_way_out(desk: Desk, args, code, said):
    ran = desk.run(*args)
    assert ran.code == code
    assert said in ran.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "teapot"}, "teapot"),
        ({"path": "relative"}, "absolute"),
        ({"path": "/srv/${x}"}, "character"),
        ({"channel": "prod"}, "MODEL/TARGET/CHANNEL"),
        ({"keep": -1}, "keep"),
        ({"kepp": 1}, "kepp"),
        (
            {"kind": "triton", "url": "http://u:secret@host", "templates": "/t"},
            "url",
        ),
    ],
)
def test_a_wrong_target_is_refused_with_its_place_in_the_file(desk: Desk, changes, said):
    desk.targets(one={**directory(desk, "one"), **changes})
    ran = desk.run("drift")
    assert ran.code == 2
    assert "error[targets-invalid]" in ran.err
    assert said in ran.err
    validated = desk.run("validate", "targets.yaml")
    assert validated.code == 2
    assert said in validated.out


def test_a_good_targets_file_is_validated_as_one(desk: Desk):
    desk.targets(one=directory(desk, "one"))
    validated = desk.run("validate", "targets.yaml")
    assert validated.code == 0
    assert "ok targets.yaml (targets)" in validated.out


def test_a_target_that_follows_another_channel_is_not_deployed_by_mistake(desk: Desk):
    desk.targets(one=directory(desk, "one"))
    ran = desk.run("deploy", CHANNEL.replace("prod", "staging"), "--target", "one")
    assert ran.code == 2
    assert f"follows {CHANNEL}" in ran.err
    assert desk.run("deploy", CHANNEL.replace("prod", "staging")).code == 8
    assert desk.run("deploy", "--target", "two").code == 8


def test_of_many_deployers_at_once_one_does_it_and_the_others_are_told(desk: Desk, yard: Yard):
    yard.promote(yard.release("a"))
    target = f"directory:{yard.place}"
    command = "from engine_pipeline.cli import main; main()"
    with Tree(yard.place, 2).held("alice (process 7)"):
        args = [sys.executable, "-c", command, "deploy", CHANNEL, "--target", target]
        env = {
            "PYTHONPATH": f"{ROOT}/registry:{ROOT}/pipeline",
            "ENGINECTL_REGISTRY": f"file://{desk.root}/engines",
            "PATH": "/usr/bin:/bin",
        }
        waiting = subprocess.run(args, capture_output=True, text=True, env=env, check=False)
        assert waiting.returncode == 7
        assert "alice (process 7)" in waiting.stderr
    together = [
        subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        for _ in range(3)
    ]
    codes = [process.wait() for process in together]
    for process in together:
        process.communicate()
    assert set(codes) <= {0, 7}
    assert 0 in codes
    assert [path.name[0] for path in (yard.place / "versions").iterdir()] == ["1"]
    assert desk.run("drift", CHANNEL, "--target", target, "--deep").code == 0


def test_a_restored_registry_that_lacks_the_newest_event_takes_its_targets_over_as_hinted(
    desk: Desk, yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    desk.targets(one=directory(desk, "one"), two=directory(desk, "two"))
    yard.promote(yard.release("a"))
    shutil.copytree(desk.root / "engines", desk.root / "copy")
    yard.promote(yard.release("b"))
    assert desk.run("deploy", CHANNEL).code == 0
    shutil.rmtree(desk.root / "engines")
    monkeypatch.setenv("ENGINECTL_REGISTRY", "file:///lost")
    copy = ("--registry", f"file://{desk.root}/copy", "--targets", "targets.yaml")
    looked = desk.run("drift", CHANNEL, *copy)
    assert looked.code == 10
    assert "event 2 (" in looked.out
    assert "not in this registry's log" in looked.out
    commands = re.findall(r"`enginectl (.*?)`", looked.out)
    assert len(commands) == 2
    refused = desk.run("deploy", CHANNEL, *copy)
    assert refused.code == 7
    assert "error[rule-log]" in refused.err
    commands.append(re.findall(r"`enginectl (.*?)`", refused.err)[0])
    for command in commands:
        assert desk.run(*shlex.split(command)).code == 0, command
    assert desk.run("drift", CHANNEL, *copy).code == 0


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("is_gone", [False, True])
def test_an_old_event_that_is_damaged_or_missing_keeps_nobody_from_deploying(
    desk: Desk, yard: Yard, number: int, is_gone: bool
):
    target = ("--target", f"directory:{yard.place}")
    yard.promote(yard.release("a"))
    yard.promote(yard.release("b"))
    assert desk.run("deploy", CHANNEL, *target).code == 0
    yard.roll_back(yard.releases[0])
    event = desk.root / "engines" / layout.event(PROD, number)
    event.unlink()
    if not is_gone:
        event.write_text("junk")
    assert desk.run("drift", CHANNEL, *target).code == 10
    done = desk.run("deploy", CHANNEL, *target)
    assert done.code == 0, done.err
    assert "serves release 1" in done.out
