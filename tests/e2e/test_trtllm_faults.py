"""What goes wrong with a build in real containers: each has its own error and leaves nothing.

One image holds every failure of the stand-in; the spec's batch size chooses which, so that all
specs share what was fetched and converted before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.runners.docker.owner import OURS
from tests.e2e.trtllm_project import (
    LIMIT_S,
    GpuProject,
    containers,
    new_gpu_project,
    toolkit,
    until,
)
from tests.servers.dockerd import DockerDaemon, shared_registry, why_none

pytestmark = pytest.mark.xdist_group("docker")

SHAPES = (
    "partial-ranks",
    "zero-byte",
    "no-output",
    "leftover-config",
    "silence",
    "full-disk",
    "hoard",
    "slow",
)
BATCH = {shape: 11 + number for number, shape in enumerate(SHAPES)}
NO_DAEMON = "unix:///nowhere/docker.sock"


def fault_image() -> str:
    fails = [[f"--max_batch_size {size}", shape] for shape, size in BATCH.items()]
    return toolkit("trtllm-faults", json.dumps({"fail": {"trtllm-build": fails}, "slow_s": 3}))


def fault_project(root: Path, daemon: DockerDaemon) -> tuple[GpuProject, dict[str, str]]:
    """A project and its locked specs by the failure that each has."""
    made = new_gpu_project(root, daemon)
    image = fault_image()
    specs = {
        shape: made.spec(
            f"h100-sxm-80gb-{shape}",
            image=image,
            target__parallelism={"tensor": 2},
            limits__max_batch_size=size,
        )
        for shape, size in BATCH.items()
    }
    missing = f"{shared_registry().host}/tests/none@sha256:{'0' * 64}"
    specs["image-missing"] = made.spec("h100-sxm-80gb-image-missing", image=missing)
    made.ok("lock", *specs.values())
    return made, specs


@pytest.fixture(scope="module")
def shared(
    docker_daemon: DockerDaemon, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GpuProject, dict[str, str]]]:
    made = fault_project(tmp_path_factory.mktemp("faults") / "project", docker_daemon)
    yield made
    made[0].close()


@pytest.fixture
def project(shared, docker_daemon: DockerDaemon) -> Iterator[GpuProject]:
    """The shared project on two idle boards; whatever a test does, no container is left."""
    shared[0].boards(2)
    yield shared[0]
    assert containers(docker_daemon) == []


@pytest.fixture
def specs(shared) -> dict[str, str]:
    return shared[1]


def leased(project: GpuProject, index: int = 0) -> bool:
    """Whether somebody has the board now."""
    with project.lease_path(index).open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def to_run(project: GpuProject, spec: str) -> list[str]:
    """Steps that the next build would run."""
    planned = project.ok("plan", spec)
    return [s["name"] for s in planned["plan"]["steps"] if s["name"] not in planned["cached"]]


@contextlib.contextmanager
def building(project: GpuProject, daemon: DockerDaemon, spec: str) -> Iterator[Any]:
    """A build in a process of its own, and the container in which it compiles."""
    process = project.start("build", spec)
    try:
        found = until(lambda: compiling(daemon) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def compiling(daemon: DockerDaemon) -> list[Any]:
    return [c for c in containers(daemon, status="running") if "-compile-" in c.name]


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("partial-ranks", "Engine building failed"),
        ("leftover-config", "Engine building failed"),
        ("zero-byte", "rank0.engine"),
        ("no-output", "config.json"),
    ],
)
def test_a_compiler_that_leaves_less_than_an_engine_is_no_success(project, specs, shape, says):
    code, error = project.failure("build", specs[shape])
    assert code == 1, error
    assert "compile" in error["message"]
    assert says in error["message"]
    # What it left is not kept, and what was done before is.
    assert to_run(project, specs[shape]) == ["compile", "engine"]


@pytest.mark.parametrize(
    ("limit", "reference"),
    [("--stall-timeout", "step-stalled"), ("--step-timeout", "step-timed-out")],
)
def test_a_compiler_that_falls_silent_is_stopped(project, specs, limit, reference):
    code, error = project.failure("build", specs["silence"], limit, "2")
    assert (code, error["reference"]) == (9, reference)
    assert "for 2 s" in error["message"]
    assert not leased(project)


def test_a_container_that_runs_out_of_memory_is_told_with_its_limit(project, specs):
    code, error = project.failure("build", specs["hoard"], "--memory", "0.15")
    assert (code, error["reference"]) == (9, "out-of-host-memory")
    assert "step compile ran out of memory (exit code 137)" in error["message"]
    assert "limit 0.15 GiB" in error["message"]


def test_a_full_disk_is_told_and_given_back(project, specs, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    # Compiling announces some 70 MiB, so preflight lets it begin.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(cache)], check=True)
    try:
        code, error = project.failure("build", specs["full-disk"], ENGINECTL_CACHE=str(cache))
        left = os.statvfs(cache)
    finally:
        subprocess.run(["umount", "--lazy", str(cache)], check=True)
    assert (code, error["reference"]) == (9, "disk-full")
    assert str(cache) in error["message"]
    assert left.f_bavail * left.f_frsize > 190 << 20


def test_a_daemon_that_does_not_run_is_told_and_worth_a_retry(project, specs):
    code, error = project.failure("build", specs["slow"], DOCKER_HOST=NO_DAEMON)
    assert (code, error["reference"]) == (9, "docker-not-running")
    assert "systemctl start docker" in error["hint"]
    assert not leased(project)


def test_an_image_that_cannot_be_pulled_is_named(project, specs):
    code, error = project.failure("build", specs["image-missing"])
    assert (code, error["reference"]) == (8, "image-not-found")
    assert "tests/none@sha256:000" in error["message"]


def name_boards(name: str):
    def change(said: dict[str, Any]) -> None:
        for device in said["devices"]:
            device["nvmlDeviceGetName"] = name

    return change


@pytest.mark.parametrize(
    ("boards", "change", "reference"),
    [
        (0, None, "gpu-driver-unfit"),
        (1, None, "gpus-too-few"),
        (2, name_boards("NVIDIA H100 PCIe"), "gpu-form-factor-differs"),
        (2, name_boards("NVIDIA A100-SXM4-80GB"), "gpu-sku-differs"),
        (2, lambda said: said.update(nvmlSystemGetDriverVersion="570.86.10"), "gpu-driver-unfit"),
    ],
)
def test_a_machine_without_the_boards_is_refused_before_anything_runs(
    project, specs, boards, change, reference
):
    project.boards(boards, change=change)
    code, error = project.failure("build", specs["slow"])
    assert (code, error["reference"]) == (6, reference)


def test_a_gpu_that_docker_cannot_give_is_told_as_missing(project, specs, docker_daemon):
    docker_daemon.gpu_hook_says("nvidia-container-cli: device error: 9: unknown device")
    try:
        code, error = project.failure("build", specs["silence"])
    finally:
        docker_daemon.gpu_hook_says("")
    assert (code, error["reference"]) == (6, "gpu-missing")


def test_a_board_on_which_another_process_computes_is_not_taken(project, specs):
    def occupy(said: dict[str, Any]) -> None:
        said["devices"][1]["nvmlDeviceGetComputeRunningProcesses"] = [
            {"pid": 4711, "usedGpuMemory": 1 << 30, "nvmlSystemGetProcessName": "python"}
        ]

    project.boards(2, change=occupy)
    code, error = project.failure("build", specs["silence"])
    assert (code, error["reference"]) == (7, "gpu-in-use")
    assert "4711" in error["message"]


def test_ctrl_c_ends_the_container_and_gives_the_boards_back(project, specs, docker_daemon):
    with building(project, docker_daemon, specs["silence"]) as (process, _):
        code, error = project.failure("build", specs["slow"])
        assert (code, error["reference"]) == (7, "gpu-leased")
        assert (
            f"is leased to toy/h100-sxm-80gb-fp16, step compile, process {process.pid}"
            in error["message"]
        )
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "error[interrupted]" in err
    assert containers(docker_daemon) == []
    assert not leased(project)


def test_a_build_killed_while_it_compiles_leaves_nothing_and_goes_on_from_there(
    project, specs, docker_daemon
):
    spec = specs["slow"]
    with building(project, docker_daemon, spec) as (process, container):
        process.kill()
        process.wait()
        until(lambda: not containers(docker_daemon))
    assert not leased(project)

    # Nobody is left to clean up when the keeper and its guard are killed too.
    with building(project, docker_daemon, spec) as (process, container):
        keeper = int(container.labels[OURS])
        guard = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in (guard, keeper):
            os.kill(pid, signal.SIGSTOP)
        for pid in (process.pid, guard, keeper):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        until(lambda: not Path(f"/proc/{keeper}").exists())
    assert [c.name for c in containers(docker_daemon)] == [container.name]
    assert project.ok("doctor", "--clean")["removed_containers"] == 1
    assert containers(docker_daemon) == []

    built = project.ok("build", spec)
    assert {s["name"]: s["reused"] for s in built["steps"]} == {
        "fetch": True,
        "checkpoint": True,
        "compile": False,
        "engine": False,
    }
    assert project.ok("verify")["ok"]
    assert not list((project.root / "cache" / "staging").iterdir())


@pytest.mark.nightly
def test_a_daemon_that_stops_while_a_step_runs_is_told_and_the_rerun_finishes(tmp_path):
    if reason := why_none():
        pytest.skip(f"no Docker Engine: {reason}")
    daemon = DockerDaemon(gpus=True)
    daemon.start()
    try:
        project, specs = fault_project(tmp_path / "project", daemon)
        project.boards(2)
        with building(project, daemon, specs["slow"]) as (process, _):
            daemon.stop()
            _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 9, err
        assert "docker-lost" in err or "container-stopped" in err
        daemon.start()
        assert containers(daemon) == []
        steps = project.ok("build", specs["slow"])["steps"]
        assert [s["name"] for s in steps if s["reused"]] == ["fetch", "checkpoint"]
        project.close()
    finally:
        daemon.close()
