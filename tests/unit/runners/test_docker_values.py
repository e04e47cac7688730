"""What containers are asked for, how they end, and what refusals mean: all without a daemon."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine_pipeline.build.plan import Step
from engine_pipeline.docker_engine.failures import explain, forbids_limits
from engine_pipeline.docker_engine.images import have_image
from engine_pipeline.progress import Silent
from engine_pipeline.runners.by_image import ByImage, ToolsOnPath
from engine_pipeline.runners.docker.ending import ContainerEnd, explain_end, resident_bytes
from engine_pipeline.runners.docker.owner import Owner, labels, owner_of
from engine_pipeline.runners.docker.work import (
    ContainerWork,
    Daemon,
    create_arguments,
    daemon_of,
    device_limits,
    memory_limit,
)
from engine_pipeline.runners.port import StepResult
from engine_registry.digest import Digest
from engine_registry.errors import (
    Incompatible,
    InvalidInput,
    NotFound,
    RefusedByPolicy,
    Unavailable,
)

GIB = 1 << 30
IMAGE = "registry.example/toolkit@sha256:" + "a" * 64
PLAIN = Daemon(memory_bytes=64 * GIB, limits_memory=True, is_rootless=False, maps_users=False)


def work(**changes) -> ContainerWork:
    return ContainerWork(
        **{
            "name": "engine-ci-compile-0a",
            "what": "step compile",
            "image": IMAGE,
            "argv": ("trtllm-build", "--output_dir", "/ci/out"),
            "mounts": (),
        }
        | changes
    )


def arguments(daemon=PLAIN, environment=None, **changes):
    return create_arguments(work(**changes), daemon, environment or {}, (1000, 100), {"a": "b"})


def test_a_container_gets_exactly_this():
    assert arguments(shm_bytes=16 * GIB, env=("HF_TOKEN",), environment={"HF_TOKEN": "x"}) == {
        "image": IMAGE,
        "command": ["trtllm-build", "--output_dir", "/ci/out"],
        "name": "engine-ci-compile-0a",
        "labels": {"a": "b"},
        "environment": {
            "HF_TOKEN": "x",
            "HOME": "/ci/scratch",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": "/ci/scratch",
            "USER": "engine-ci",
        },
        "working_dir": "/ci/scratch",
        "user": "1000:100",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "log_config": {"Type": "none"},
        "hostname": "engine-ci",
        "extra_hosts": {"engine-ci": "127.0.0.1"},
        "network_mode": "none",
        "stdin_open": False,
        "tty": False,
        "stop_signal": "SIGKILL",
        "shm_size": 16 * GIB,
        "mem_limit": 60 * GIB,
        "memswap_limit": 60 * GIB,
    }


def test_a_server_is_published_on_loopback_only_and_may_end_in_order():
    found = arguments(port=8123, stop_s=6)
    assert found["ports"] == {"8123/tcp": ("127.0.0.1", 8123)}
    assert found["network_mode"] == "bridge"
    assert "stop_signal" not in found


@pytest.mark.parametrize(
    "name", ["LD_LIBRARY_PATH", "PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "HOME", "TMPDIR"]
)
def test_what_describes_this_machine_stays_out_even_if_a_step_names_it(name):
    found = arguments(env=(name,), environment={name: "/of/this/machine"})
    assert "/of/this/machine" not in found["environment"].values()


def test_variables_of_the_plan_are_set_and_absent_ones_stay_absent():
    found = arguments(env=("NOT_SET",), variables={"HF_HUB_OFFLINE": "1"})["environment"]
    assert found["HF_HUB_OFFLINE"] == "1"
    assert "NOT_SET" not in found


def test_a_rootless_daemon_maps_root_to_this_user_and_a_mapping_one_is_told_not_to():
    rootless = daemon_of({"MemTotal": GIB, "SecurityOptions": ["name=seccomp", "name=rootless"]})
    assert arguments(daemon=rootless)["user"] == "0:0"
    mapping = daemon_of({"MemTotal": GIB, "SecurityOptions": ["name=userns"], "MemoryLimit": True})
    assert arguments(daemon=mapping)["userns_mode"] == "host"
    assert arguments(daemon=mapping)["user"] == "1000:100"


def test_memory_is_limited_below_the_machines_or_as_told_or_where_it_cannot_be_not_at_all():
    assert memory_limit(work(), PLAIN) == 60 * GIB
    assert memory_limit(work(memory_bytes=GIB), PLAIN) == GIB
    assert memory_limit(work(memory_bytes=GIB), daemon_of({"MemTotal": GIB})) is None


def test_only_gpu_work_asks_for_the_toolkits_limits():
    assert device_limits(work()) == ()
    assert dict(device_limits(work(gpus=("GPU-1",)))) == {"memlock": -1, "stack": 67108864}


SENTENCES = [
    (
        'could not select device driver "nvidia" with capabilities: [[gpu]]',
        Incompatible,
        "docker-without-gpus",
    ),
    (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        Incompatible,
        "docker-without-gpus",
    ),
    (
        "failed to discover GPU vendor from CDI: no known GPU vendor found",
        Incompatible,
        "docker-without-gpus",
    ),
    (
        "error running hook #0: exit status 1, stderr: nvidia-container-cli: device error: "
        "GPU-1: unknown device: unknown",
        Incompatible,
        "gpu-missing",
    ),
    ("manifest for r/x@sha256:aa not found: manifest unknown", NotFound, "image-not-found"),
    ("No such image: r/x@sha256:aa", NotFound, "image-not-found"),
    (
        "pull access denied for x, repository does not exist or may require 'docker login'",
        RefusedByPolicy,
        "image-pull-denied",
    ),
    ('Get "https://r/v2/": no basic auth credentials', RefusedByPolicy, "image-pull-denied"),
    ("no matching manifest for linux/arm64/v8", Incompatible, "image-other-platform"),
    ("exec /usr/bin/python3: exec format error", Incompatible, "image-other-platform"),
    ("write /var/lib/docker/x: no space left on device", Unavailable, "docker-disk-full"),
    (
        'Get "https://r/v2/": dial tcp: lookup r: no such host',
        Unavailable,
        "image-registry-unreachable",
    ),
    ("toomanyrequests: You have reached your pull rate limit", Unavailable, "image-registry-"),
    (
        'invalid mount config for type "bind": bind source path does not exist: /x',
        Incompatible,
        "docker-sees-other-files",
    ),
    ("Bind for 127.0.0.1:8000 failed: port is already allocated", Unavailable, "port-taken"),
    (
        'exec: "trtllm-build": executable file not found in $PATH: unknown',
        Incompatible,
        "command-not-in-image",
    ),
    (
        'unable to start container process: exec: "/x/y": stat /x/y: no such file or directory',
        Incompatible,
        "command-not-in-image",
    ),
    ("invalid reference format", InvalidInput, "image-reference-invalid"),
    ("something that nobody has seen yet", Unavailable, "docker-refused"),
]


@pytest.mark.parametrize(("said", "kind", "reference"), SENTENCES)
def test_each_refusal_of_docker_is_an_error_of_its_own_with_its_words(said, kind, reference):
    error = explain("step compile", said)
    assert type(error) is kind
    assert error.name.startswith(reference)
    assert error.message.startswith("step compile: ")
    assert said[:20] in error.message
    assert error.hint


def test_a_refusal_that_quotes_a_token_is_cleaned():
    error = explain("image x", "denied: https://user:secretpassword@r/v2/?token=abcdefghijkl")
    assert "secretpassword" not in error.message
    assert "abcdefghijkl" not in error.message


def test_limits_that_may_not_be_raised_are_recognised():
    assert forbids_limits("error setting rlimit type 8: operation not permitted")
    assert not forbids_limits("operation not permitted")


def ended(status, **changes):
    return explain_end(
        "step compile",
        8 * GIB,
        ContainerEnd(
            **{
                "status": status,
                "oom_killed": False,
                "stopped_by_daemon": False,
                "peak_bytes": 7 * GIB,
                "limit_bytes": 60 * GIB,
            }
            | changes
        ),
    )


@pytest.mark.parametrize("status", [0, 1, 2, 9, 126, 143])
def test_an_exit_that_is_the_commands_own_is_left_to_it(status):
    assert ended(status) is None


def test_memory_is_told_with_all_three_figures():
    error = ended(137, oom_killed=True)
    assert error.name == "out-of-host-memory"
    assert "ran out of memory (exit code 137): peak 7.00 GiB, limit 60.00 GiB, expected 8.00" in (
        error.message
    )


def test_a_kill_that_nobody_confirms_is_told_as_one_that_looks_like_memory():
    error = ended(137, peak_bytes=None, limit_bytes=None)
    assert error.name == "out-of-host-memory"
    assert "was killed, as when memory runs out" in error.message
    assert "peak unknown, no limit" in error.message


@pytest.mark.parametrize("status", [137, 143])
def test_a_stop_through_the_daemon_is_not_taken_for_memory(status):
    assert ended(status, stopped_by_daemon=True).name == "container-stopped"


def test_a_killed_helper_counts_only_if_the_command_failed_with_it():
    assert ended(1, oom_killed=True).name == "out-of-host-memory"
    assert ended(0, oom_killed=True) is None


@pytest.mark.parametrize(
    ("stats", "found"),
    [
        ({"usage": 900, "stats": {"total_rss": 70, "rss": 60, "cache": 800}}, 70),
        ({"usage": 900, "stats": {"anon": 80, "file": 800}}, 80),
        ({}, None),
        ({"stats": None}, None),
    ],
)
def test_resident_memory_is_read_from_both_kinds_of_control_groups(stats, found):
    assert resident_bytes(stats) == found


def test_the_owner_is_alive_until_its_process_is_gone():
    mine = labels()
    assert owner_of(mine) is Owner.ALIVE
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert owner_of(mine | {"engine-ci.keeper": str(gone.pid)}) is Owner.DEAD


@pytest.mark.parametrize(
    ("changes", "owner"),
    [
        # Another process has the PID now.
        ({"engine-ci.keeper-started": "1"}, Owner.DEAD),
        # This machine has been started anew.
        ({"engine-ci.boot": "another boot"}, Owner.DEAD),
        # PIDs of other containers and other machines mean nothing here.
        ({"engine-ci.pid-namespace": "pid:[1]"}, Owner.UNKNOWN),
        ({"engine-ci.host": "another"}, Owner.UNKNOWN),
        ({"engine-ci.host": "another", "engine-ci.boot": "another boot"}, Owner.UNKNOWN),
        ({"engine-ci.keeper": "not a number"}, Owner.UNKNOWN),
    ],
)
def test_another_process_boot_machine_or_namespace_is_told_apart(changes, owner):
    assert owner_of(labels() | changes) is owner


def test_labels_hold_only_who_the_keeper_is():
    assert labels().keys() == {
        "engine-ci.keeper",
        "engine-ci.keeper-started",
        "engine-ci.host",
        "engine-ci.boot",
        "engine-ci.pid-namespace",
    }
    assert labels()["engine-ci.keeper"] == str(os.getpid())


def test_an_image_named_by_a_tag_is_refused_without_asking_anybody():
    with pytest.raises(InvalidInput) as caught:
        have_image(None, "registry.example/toolkit:1.2.1", Silent())
    assert caught.value.name == "image-not-pinned"


class Recording:
    """A runner that only remembers what it was given."""

    def __init__(self):
        self.seen = []

    def run(self, step, paths, progress):
        self.seen.append(step)
        return StepResult(wall_s=0.0, peak_rss_bytes=None)


def step(**changes) -> Step:
    return Step(
        **{"name": "toy", "title": "Toy", "argv": ("sh",), "outputs": ("o",)}
        | {"key": Digest.of(b"")}
        | changes
    )


def test_steps_with_an_image_go_to_its_runner_and_others_stay_here():
    here, in_image = Recording(), Recording()
    runner = ByImage(here, in_image)
    runner.run(step(name="fetch"), None, Silent())
    runner.run(step(name="compile", image=IMAGE), None, Silent())
    assert [s.name for s in here.seen] == ["fetch"]
    assert [s.name for s in in_image.seen] == ["compile"]


def test_with_the_tools_on_path_an_image_is_not_asked_for():
    here = Recording()
    ToolsOnPath(here).run(step(image=IMAGE), None, Silent())
    ToolsOnPath(here).run(step(argv=("{python}", "-m", "x")), None, Silent())
    assert [s.image for s in here.seen] == [None, None]


def test_a_tool_that_is_not_on_path_is_named_with_the_image_that_has_it():
    with pytest.raises(Incompatible, match=f"no-such-tool is not on PATH.*{IMAGE}") as caught:
        ToolsOnPath(Recording()).run(step(argv=("no-such-tool",), image=IMAGE), None, Silent())
    assert caught.value.name == "tool-not-on-path"
