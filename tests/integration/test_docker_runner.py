"""Steps in real containers of a real Docker Engine, and each way they can end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.build.gpu_lease import GpuLeases, LeasingRunner
from engine_pipeline.build.plan import Step
from engine_pipeline.nvml.reader import NvmlReader
from engine_pipeline.nvml.rules import Demand
from engine_pipeline.progress import Silent
from engine_pipeline.runners.docker.orphans import clean_orphans
from engine_pipeline.runners.docker.owner import OURS, labels
from engine_pipeline.runners.docker.runner import DockerRunner
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.runners.port import Runner, StepPaths, StepResult
from engine_pipeline.spec.hardware import find_sku
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput, NotFound, Unavailable
from tests.servers.dockerd import DockerDaemon, python_reference, why_none
from tests.servers.gpus import environment as fake_boards
from tests.servers.gpus import recorded

pytestmark = pytest.mark.xdist_group("docker")

LIMIT_S = 30
GPU = "GPU-8f6e0c1a-0000-4c6e-9c3b-2f0b8a1d7e55"


@dataclass
class Heard:
    """Progress that remembers."""

    said: list[tuple[object, ...]] = field(default_factory=list)

    def phase(self, name, detail=""):
        self.said.append(("phase", name, detail))

    def update(self, done, total, unit):
        self.said.append(("update", done, total, unit))

    def note(self, text):
        self.said.append(("note", text))


@pytest.fixture
def daemon(docker_daemon: DockerDaemon, monkeypatch) -> Iterator[DockerDaemon]:
    """The shared daemon; whatever a test does, no container is left when it ends."""
    for name, value in docker_daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield docker_daemon
    assert containers(docker_daemon) == []


def containers(daemon: DockerDaemon) -> list[str]:
    return [
        c.name
        for c in daemon.client().containers.list(
            all=True, ignore_removed=True, filters={"label": OURS}
        )
    ]


def paths_below(root: Path, **changes) -> StepPaths:
    for name in ("output", "scratch", "input"):
        (root / name).mkdir(parents=True)
    (root / "lock.json").write_text("{}")
    (root / "input" / "weights").write_text("weights of the step before")
    return StepPaths(
        lock=root / "lock.json",
        output=root / "output",
        scratch=root / "scratch",
        log=root / "log.txt",
        inputs={"before": root / "input"},
        **changes,
    )


@pytest.fixture
def paths(tmp_path) -> StepPaths:
    return paths_below(tmp_path)


def step(program: str, *more: str, **changes) -> Step:
    """A step that runs a Python program in the image."""
    return Step(
        **{
            "name": "toy",
            "title": "Toy",
            "argv": ("{python}", "-c", textwrap.dedent(program), *more),
            "outputs": ("out",),
            "ram_bytes": 1 << 30,
            "disk_bytes": 1 << 20,
            "image": python_reference(),
            "key": Digest.of(b"toy"),
        }
        | changes
    )


def run(program, paths, *more, runner=None, progress=None, **changes):
    chosen: Runner = runner or DockerRunner(LocalRunner())
    return chosen.run(step(program, *more, **changes), paths, progress or Silent())


def failure(program, paths, **changes) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        run(program, paths, **changes)
    return caught.value


# One run that looks at everything a container is, so that each property is one cheap test.
LOOK = """
import json, os, resource, socket, sys, time
from pathlib import Path

output, lock, before = sys.argv[1:]

def refused(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
    return None

kept = b"x" * (80 << 20)
shm = os.statvfs("/dev/shm")
Path(output, "out").write_text(json.dumps({
    "arguments": sys.argv[1:],
    "read": Path(before, "weights").read_text() + Path(lock).read_text(),
    "refused": {path: refused(path) for path in (f"{before}/more", lock)},
    "directory": os.getcwd(),
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "address": socket.gethostbyname(socket.gethostname()),
    "environment": dict(os.environ),
    "capabilities": Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0],
    "shm_bytes": shm.f_blocks * shm.f_frsize,
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
}))
Path("model.cache").write_text("a side file")
Path("/tmp/side").write_text("a temporary file")
print("::progress 5 10 bytes")
print("plain text")
print(os.environ["HF_TOKEN"])
print("trouble", file=sys.stderr)
print("::note looked", flush=True)
time.sleep(2.2)  # until memory has been looked at
"""


@dataclass
class Looked:
    """What `LOOK` found, and what could be seen of it from outside meanwhile."""

    inside: dict[str, Any]
    outside: dict[str, Any]
    heard: Heard
    paths: StepPaths
    result: StepResult


@pytest.fixture(scope="module")
def looked(docker_daemon, tmp_path_factory) -> Looked:
    outside = {}

    class Looking(Heard):
        def note(self, text):
            super().note(text)
            if text == "looked":
                (found,) = docker_daemon.client().containers.list(filters={"label": OURS})
                outside.update(found.attrs)

    heard = Looking()
    paths = paths_below(tmp_path_factory.mktemp("looked"), gpus=(GPU,))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **docker_daemon.environment,
            "HF_TOKEN": "hf_verysecretvalue",
            "OTHER_SETTING": "not asked for",
            "LD_LIBRARY_PATH": "/of/this/machine",
        }.items():
            patch.setenv(name, value)
        result = run(
            LOOK,
            paths,
            "{output}",
            "{lock}",
            "{input:before}",
            progress=heard,
            env=("HF_TOKEN", "LD_LIBRARY_PATH"),
            variables={"TOY": "a setting"},
            gpus=1,
            shm_bytes=32 << 20,
        )
    inside = json.loads((paths.output / "out").read_text())
    return Looked(inside=inside, outside=outside, heard=heard, paths=paths, result=result)


def test_a_step_reads_the_lock_and_its_inputs_and_cannot_write_them(looked):
    assert looked.inside["arguments"] == ["/ci/out", "/ci/lock.json", "/ci/in/before"]
    assert looked.inside["read"] == "weights of the step before{}"
    read_only = "Read-only file system"
    assert looked.inside["refused"] == {"/ci/in/before/more": read_only, "/ci/lock.json": read_only}


def test_the_output_belongs_to_this_user_and_side_files_stay_out_of_it(looked):
    made = list(looked.paths.output.iterdir())
    assert [path.name for path in made] == ["out"]
    assert made[0].stat().st_uid == os.getuid()
    assert looked.inside["directory"] == "/ci/scratch"
    assert (looked.paths.scratch / "work" / "model.cache").exists()
    assert (looked.paths.scratch / "tmp" / "side").exists()


def test_there_is_no_network_but_the_step_finds_itself(looked):
    assert looked.inside["interfaces"] == ["lo"]
    assert looked.inside["address"] == "127.0.0.1"


def test_only_what_the_step_names_is_in_its_environment_and_nothing_of_this_machine(looked):
    found = looked.inside["environment"]
    assert found["HF_TOKEN"] == "hf_verysecretvalue"
    assert found["TOY"] == "a setting"
    assert found["HOME"] == found["TMPDIR"] == "/ci/scratch"
    assert not {"OTHER_SETTING", "LD_LIBRARY_PATH", "DOCKER_HOST"} & found.keys()


def test_the_value_of_a_secret_is_in_no_log_label_command_or_name(looked):
    config = looked.outside["Config"]
    shown = [config["Labels"], config["Cmd"], looked.outside["Name"], looked.outside["Path"]]
    shown += [looked.outside["Args"], looked.paths.log.read_text(), looked.heard.said]
    assert "verysecret" not in str(shown)
    assert "[secret]" in looked.paths.log.read_text()


def test_the_container_has_no_rights_it_does_not_need_and_docker_keeps_no_log(looked):
    assert int(looked.inside["capabilities"], 16) == 0
    assert "1" in looked.inside["processes"]
    host = looked.outside["HostConfig"]
    assert host["LogConfig"]["Type"] == "none"
    assert host["NetworkMode"] == "none"
    assert not host["Privileged"]
    assert host["PidMode"] == ""


def test_it_has_exactly_the_leased_gpus_shared_memory_and_the_toolkits_limits(looked):
    assert looked.inside["environment"]["NVIDIA_VISIBLE_DEVICES"] == GPU
    assert looked.inside["shm_bytes"] == 32 << 20
    told = any("may not raise limits" in str(said) for said in looked.heard.said)
    # A daemon that may not raise limits is told about, and not the end of it.
    assert told or looked.inside["memlock"] == -1


def test_progress_and_text_come_through(looked):
    assert ("update", 5.0, 10.0, "bytes") in looked.heard.said
    assert ("phase", "run", f"step toy in {python_reference()}") in looked.heard.said
    assert {"plain text", "trouble"} <= set(looked.paths.log.read_text().splitlines())


def test_time_and_the_peak_of_memory_are_measured(looked):
    assert looked.result.wall_s > 2
    assert looked.result.peak_rss_bytes is not None
    assert 80 << 20 < looked.result.peak_rss_bytes < 160 << 20


def test_a_step_with_network_has_one(daemon, paths):
    if not daemon.publishes_ports:
        pytest.skip("this machine cannot make a bridge")
    run("import os; print(sorted(os.listdir('/sys/class/net')))", paths, network=True)
    assert "eth0" in paths.log.read_text()


def test_an_error_that_a_step_states_is_raised_as_its_own_class(daemon, paths):
    program = """
        import json, sys
        error = {"reference": "toy-wrong", "message": "toy is wrong", "hint": "mend it"}
        print("::error " + json.dumps(error | {"exit_code": 2}), file=sys.stderr)
        sys.exit(2)
    """
    error = failure(program, paths)
    assert isinstance(error, InvalidInput)
    assert (error.message, error.hint, error.name) == ("toy is wrong", "mend it", "toy-wrong")


def test_a_step_that_fails_silently_shows_its_code_and_its_last_line_without_secrets(
    daemon, paths, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretvalue")
    program = "import os, sys; print('used', os.environ['HF_TOKEN'], file=sys.stderr); sys.exit(3)"
    error = failure(program, paths, env=("HF_TOKEN",))
    assert error.name == "step-failed"
    assert "exit code 3: used [secret]" in error.message
    # For whoever knows the tool and can say more.
    assert error.tail == ("used [secret]",)


def test_memory_over_the_limit_is_told_with_limit_and_expectation(daemon, paths):
    runner = DockerRunner(LocalRunner(), memory_bytes=128 << 20)
    error = failure("kept = b'x' * (400 << 20)", paths, runner=runner)
    assert isinstance(error, Unavailable)
    assert error.name == "out-of-host-memory"
    assert "step toy ran out of memory (exit code 137)" in error.message
    assert "limit 0.12 GiB, expected 1.00 GiB" in error.message


def test_a_killed_helper_process_is_told_as_memory_although_the_step_exits_by_itself(daemon, paths):
    program = """
        import subprocess, sys
        worker = "kept = b'x' * (400 << 20)"
        sys.exit(1 if subprocess.run([sys.executable, "-c", worker]).returncode else 0)
    """
    runner = DockerRunner(LocalRunner(), memory_bytes=128 << 20)
    error = failure(program, paths, runner=runner)
    assert error.name == "out-of-host-memory"
    assert "(exit code 1)" in error.message


def test_a_container_that_somebody_stops_is_not_taken_for_one_out_of_memory(daemon, paths):
    class Stopping(Heard):
        def note(self, text):
            daemon.client().containers.list(filters={"label": OURS})[0].kill()

    program = "print('::note running', flush=True); import time; time.sleep(1000)"
    error = failure(program, paths, progress=Stopping())
    assert isinstance(error, Unavailable)
    assert error.name == "container-stopped"


def test_a_full_output_directory_is_told_as_such(daemon, paths):
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(paths.output)], check=True
    )
    try:
        error = failure("open('/ci/out/out', 'wb').write(b'x' * (4 << 20))", paths)
    finally:
        subprocess.run(["umount", str(paths.output)], check=True)
    assert error.name == "disk-full"
    assert str(paths.output.parent) in error.message


def test_a_silent_step_is_stopped_as_stalled(daemon, paths):
    runner = DockerRunner(LocalRunner(stall_timeout_s=1.5))
    assert failure("import time; time.sleep(1000)", paths, runner=runner).name == "step-stalled"


def test_an_endless_step_is_stopped_although_it_speaks_and_ignores_sigterm(daemon, paths):
    program = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            print("::note on it", flush=True)
            time.sleep(0.05)
    """
    runner = DockerRunner(LocalRunner(timeout_s=2))
    assert failure(program, paths, runner=runner).name == "step-timed-out"


def test_a_step_without_its_leased_gpus_is_a_bug_and_starts_nothing(daemon, paths):
    with pytest.raises(EngineCIError, match="needs 1 GPUs, 0 are leased"):
        run("", paths, gpus=1)


def test_a_gpu_that_is_gone_is_told_as_missing(daemon, tmp_path):
    daemon.gpu_hook_says("nvidia-container-cli: device error: 9: unknown device")
    try:
        error = failure("", paths_below(tmp_path / "work", gpus=(GPU,)), gpus=1)
    finally:
        daemon.gpu_hook_says("")
    assert isinstance(error, Incompatible)
    assert error.name == "gpu-missing"
    assert "step toy" in error.message


def test_a_command_that_the_image_lacks_is_told_as_such(daemon, paths):
    error = failure("", paths, argv=("trtllm-build", "--help"))
    assert isinstance(error, Incompatible)
    assert error.name == "command-not-in-image"


def test_an_image_that_does_not_exist_is_told_as_such(daemon, paths):
    missing = python_reference()[:-8] + "00000000"
    error = failure("", paths, image=missing)
    assert isinstance(error, NotFound)
    assert error.name == "image-not-found"
    assert missing in error.message


RUNNER = """
import os, sys
from pathlib import Path
from engine_pipeline.build.gpu_lease import GpuLeases, LeasingRunner
from engine_pipeline.build.plan import Step
from engine_pipeline.nvml.reader import NvmlReader
from engine_pipeline.nvml.rules import Demand
from engine_pipeline.progress import Silent
from engine_pipeline.runners.docker.runner import DockerRunner
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.runners.port import StepPaths
from engine_registry.digest import Digest

class Note(Silent):
    def note(self, text):
        print(text, flush=True)

root = Path(sys.argv[1])
for name in ("output", "scratch"):
    (root / name).mkdir()
(root / "lock").write_text("{}")
paths = StepPaths(lock=root / "lock", output=root / "output", scratch=root / "scratch",
                  log=root / "log")
step = Step(
    name="toy", title="Toy", outputs=("out",), key=Digest.of(b""), image=sys.argv[2],
    argv=("{python}", "-c", "print('::note running', flush=True); import time; time.sleep(1000)"),
)
try:
    DockerRunner(LocalRunner()).run(step, paths, Note())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def started(daemon, tmp_path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own whose step is running in its container."""
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(work), python_reference()],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert read_line(process) == b"running\n"
        yield process
    finally:
        process.kill()
        process.wait()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
    assert ready, "the process said nothing"
    return process.stdout.readline()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def keeper_of(daemon: DockerDaemon) -> int:
    (container,) = daemon.client().containers.list(filters={"label": OURS})
    return int(container.labels[OURS])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_ctrl_c_removes_the_container_before_it_is_passed_on(daemon, started):
    started.send_signal(signal.SIGINT)
    assert read_line(started) == b"interrupted\n"
    assert containers(daemon) == []


def test_kill_9_of_the_pipeline_removes_the_container_by_itself(daemon, started):
    started.kill()
    until(lambda: containers(daemon) == [])


def test_kill_9_of_the_keeper_ends_the_step_and_the_runner_removes_the_container(daemon, started):
    os.kill(keeper_of(daemon), signal.SIGKILL)
    assert started.wait(LIMIT_S) == 1
    assert containers(daemon) == []


def test_what_even_a_killed_keeper_leaves_is_removed_by_the_sweep_and_no_other(
    daemon, started, tmp_path
):
    keeper = keeper_of(daemon)
    processes = [parent_of(keeper), keeper]
    # While it lives, a sweep leaves it alone.
    assert clean_orphans().removed == ()
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    started.kill()
    started.wait(LIMIT_S)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{keeper}").exists())
    (orphan,) = containers(daemon)
    assert clean_orphans().removed == (orphan,)
    assert containers(daemon) == []
    assert clean_orphans().removed == ()


def test_the_next_run_removes_what_a_dead_keeper_left_and_no_container_of_another_machine(
    daemon, paths
):
    client = daemon.client()
    run("pass", paths)
    left = {
        "dead": labels() | {"engine-ci.boot": "an earlier boot"},
        "foreign": labels() | {"engine-ci.host": "another machine"},
    }
    for name, marks in left.items():
        client.containers.create(python_reference(), ["true"], name=name, labels=marks)
    try:
        run("pass", paths_below(paths.lock.parent / "next"))
        assert containers(daemon) == ["foreign"]
        assert clean_orphans().unknown == ("foreign",)
    finally:
        client.api.remove_container("foreign", force=True)


def test_a_leased_board_is_the_one_that_the_container_gets(daemon, paths, monkeypatch):
    for name, value in fake_boards("h100-pcie").items():
        monkeypatch.setenv(name, value)
    leases = GpuLeases(NvmlReader(), directory=paths.lock.parent / "locks", environment={})
    runner = LeasingRunner(
        DockerRunner(LocalRunner()),
        leases=leases,
        demand=Demand(sku=find_sku("h100-pcie-80gb")),
        holder="toy",
    )
    run("import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])", paths, runner=runner, gpus=1)
    assert paths.log.read_text().split() == [recorded("h100-pcie").boards[0].uuid]


@pytest.fixture(scope="module")
def plain_daemon() -> Iterator[DockerDaemon]:
    """A daemon without any GPU support, which may be stopped."""
    if reason := why_none():
        pytest.skip(f"no Docker Engine: {reason}")
    daemon = DockerDaemon()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()


def test_gpus_without_a_driver_are_told_as_such(plain_daemon, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", plain_daemon.environment["DOCKER_HOST"])
    error = failure("", paths_below(tmp_path / "work", gpus=(GPU,)), gpus=1)
    assert isinstance(error, Incompatible)
    assert error.name == "docker-without-gpus"
    assert "nvidia-container-toolkit" in error.hint
    assert containers(plain_daemon) == []


def test_a_daemon_that_stops_mid_run_is_told_and_a_rerun_works_once_it_is_back(
    plain_daemon, tmp_path, monkeypatch
):
    monkeypatch.setenv("DOCKER_HOST", plain_daemon.environment["DOCKER_HOST"])

    class Stopping(Heard):
        def note(self, text):
            plain_daemon.stop()

    program = "print('::note running', flush=True); import time; time.sleep(1000)"
    error = failure(program, paths_below(tmp_path / "first"), progress=Stopping())
    assert isinstance(error, Unavailable)
    assert error.name in {"docker-lost", "container-stopped"}
    again = failure(program, paths_below(tmp_path / "again"))
    assert again.name == "docker-not-running"
    plain_daemon.start()
    run("open('/ci/out/out', 'w').write('done')", paths_below(tmp_path / "third"))
    assert containers(plain_daemon) == []
