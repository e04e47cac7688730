"""One build per GPU: who gets a board, who is refused, and what is said afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from engine_pipeline.build.gpu_lease import GpuLeases, LeasingRunner, lock_directory
from engine_pipeline.build.plan import Step
from engine_pipeline.nvml.inventory import GpuProcess
from engine_pipeline.nvml.rules import Demand
from engine_pipeline.progress import Silent
from engine_pipeline.runners.port import StepPaths, StepResult
from engine_pipeline.spec.hardware import find_sku
from engine_registry.digest import Digest
from engine_registry.errors import Conflict, EngineCIError, Incompatible, Unavailable
from tests.servers.gpus import FakeGpus, recorded

H100 = Demand(sku=find_sku("h100-sxm-80gb"))
H200 = Demand(sku=find_sku("h200-sxm-141gb"))
OTHER = GpuProcess(pid=4711, name="python3", memory_bytes=1 << 30)


@dataclass
class Notes(Silent):
    said: list[str] = field(default_factory=list)

    def note(self, text):
        self.said.append(text)


@pytest.fixture
def gpus():
    return FakeGpus(recorded("h100-nvl-2"))


NVL = Demand(sku=find_sku("h100-nvl-94gb"))


@pytest.fixture
def leases(tmp_path, gpus):
    return lambda **more: GpuLeases(
        **{"reader": gpus, "directory": tmp_path / "locks", "environment": {}} | more
    )


def with_ranks(demand: Demand, ranks: int) -> Demand:
    return Demand(sku=demand.sku, ranks=ranks)


def test_two_leases_get_two_boards_and_a_third_is_refused_by_name(leases):
    with (
        leases().lease(NVL, "llama/fp8", Silent()) as (first,),
        leases().lease(NVL, "qwen/int4", Silent()) as (second,),
    ):
        assert first.uuid != second.uuid
        with (
            pytest.raises(Conflict, match=rf"is leased to .*, process {os.getpid()}") as caught,
            leases().lease(NVL, "mixtral/fp8", Silent()),
        ):
            pass
        assert caught.value.name == "gpu-leased"
        assert {"llama/fp8" in str(caught.value), "qwen/int4" in str(caught.value)} == {True, False}


def test_a_lease_ends_with_its_block_however_that_ends(leases):
    with pytest.raises(KeyboardInterrupt), leases().lease(with_ranks(NVL, 2), "a", Silent()):
        raise KeyboardInterrupt
    with leases().lease(with_ranks(NVL, 2), "b", Silent()) as boards:
        assert len(boards) == 2


def test_several_boards_are_leased_together_or_not_at_all(leases):
    with leases().lease(NVL, "one", Silent()):
        with pytest.raises(Conflict), leases().lease(with_ranks(NVL, 2), "two", Silent()):
            pass
        # The board that was free has been given back by the refused one.
        with leases().lease(NVL, "three", Silent()) as boards:
            assert len(boards) == 1


LEASE = """
import sys
from pathlib import Path
from engine_pipeline.build.gpu_lease import GpuLeases
from engine_pipeline.nvml.rules import Demand
from engine_pipeline.progress import Silent
from engine_pipeline.spec.hardware import find_sku
from tests.servers.gpus import FakeGpus, recorded

leases = GpuLeases(FakeGpus(recorded("h100-pcie")), directory=Path(sys.argv[1]), environment={})
with leases.lease(Demand(sku=find_sku("h100-pcie-80gb")), "killed build", Silent()):
    print("leased", flush=True)
    sys.stdin.read()
"""


def test_another_process_holds_its_board_until_it_is_killed(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", LEASE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    leases = GpuLeases(FakeGpus(recorded("h100-pcie")), directory=tmp_path, environment={})
    demand = Demand(sku=find_sku("h100-pcie-80gb"))
    with other:
        assert other.stdout.readline() == b"leased\n"
        with (
            pytest.raises(Conflict, match=f"leased to killed build, process {other.pid}"),
            leases.lease(demand, "mine", Silent()),
        ):
            pass
        other.kill()
    with leases.lease(demand, "mine", Silent()) as boards:
        assert len(boards) == 1


def test_a_board_that_somebody_computes_on_is_passed_over(tmp_path):
    leases = GpuLeases(FakeGpus(recorded("h200-sxm-4")), directory=tmp_path, environment={})
    with leases.lease(with_ranks(H200, 2), "mine", Silent()) as boards:
        assert sorted(board.index for board in boards) == [1, 3]
        with pytest.raises(Conflict) as caught, leases.lease(H200, "more", Silent()):
            pass
        assert caught.value.name in {"gpu-in-use", "gpu-leased"}


def test_the_refusal_names_the_process_that_uses_the_board(leases, gpus):
    gpus.change(0, processes=(OTHER,))
    gpus.change(1, processes=(OTHER,))
    with (
        pytest.raises(Conflict, match=r"in use by process 4711 \(python3, 1024 MiB\)") as caught,
        leases().lease(NVL, "mine", Silent()),
    ):
        pass
    assert caught.value.name == "gpu-in-use"


def test_a_process_that_comes_between_the_look_and_the_lock_is_seen(tmp_path):
    class Arriving(FakeGpus):
        looks = 0

        def read(self):
            self.looks += 1
            if self.looks == 2:
                self.change(0, processes=(OTHER,))
            return self.inventory

    leases = GpuLeases(Arriving(recorded("h100-pcie")), directory=tmp_path, environment={})
    with (
        pytest.raises(Conflict, match="4711"),
        leases.lease(Demand(sku=find_sku("h100-pcie-80gb")), "mine", Silent()),
    ):
        pass


def test_what_a_killed_run_left_is_swept_before_anybody_is_refused(leases, gpus):
    gpus.change(0, processes=(OTHER,))
    gpus.change(1, processes=(OTHER,))

    def sweep():
        gpus.change(0, processes=())

    with leases(sweep=sweep).lease(NVL, "mine", Silent()) as (board,):
        assert board.index == 0


def test_a_sweep_that_cannot_be_done_refuses_nobody(leases, gpus):
    gpus.change(0, processes=(OTHER,))

    def sweep():
        raise Unavailable("no daemon", hint="start it")

    with leases(sweep=sweep).lease(NVL, "mine", Silent()) as (board,):
        assert board.index == 1


def test_memory_that_no_process_holds_is_refused_as_such(tmp_path):
    leases = GpuLeases(FakeGpus(recorded("h100-sxm-held")), directory=tmp_path, environment={})
    with (
        pytest.raises(Unavailable, match="20359 MiB free, 73403 needed") as caught,
        leases.lease(H100, "mine", Silent()),
    ):
        pass
    assert caught.value.name == "gpu-memory-held"


def test_only_visible_boards_are_leased(tmp_path):
    def lease(devices, ranks):
        return GpuLeases(
            FakeGpus(recorded("h100-sxm-8")),
            directory=tmp_path,
            environment={"CUDA_VISIBLE_DEVICES": devices},
        ).lease(with_ranks(H100, ranks), "mine", Silent())

    with lease("6,1", 2) as boards:
        assert sorted(board.index for board in boards) == [1, 6]
    with pytest.raises(Incompatible, match="leaves 1 of 8") as caught, lease("6", 2):
        pass
    assert caught.value.name == "gpus-not-visible"


def test_a_machine_without_such_boards_is_refused_before_any_lock_is_made(tmp_path):
    leases = GpuLeases(FakeGpus(recorded("no-library")), directory=tmp_path / "x", environment={})
    with pytest.raises(Incompatible, match="NVML Shared"), leases.lease(H100, "mine", Silent()):
        pass
    assert not (tmp_path / "x").exists()


class Time:
    """A clock that only waiting moves; `then` maps a time to what happens at it."""

    def __init__(self, **then):
        self.now = 0.0
        self.then = {float(at[1:]): act for at, act in then.items()}

    def clock(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        for at in [at for at in self.then if at <= self.now]:
            self.then.pop(at)()


def test_memory_that_comes_back_late_is_waited_for_in_silence(leases, gpus):
    free = gpus.inventory.boards[0].free_bytes
    time = Time(_3=lambda: gpus.change(0, free_bytes=free))
    notes = Notes()
    with leases(clock=time.clock, wait=time.wait).lease(with_ranks(NVL, 2), "mine", notes):
        gpus.change(0, free_bytes=free // 2)
    assert notes.said == []
    assert 3 <= time.now < 4


def test_memory_or_a_process_that_stays_is_told(leases, gpus):
    time, notes = Time(), Notes()
    free = gpus.inventory.boards[0].free_bytes
    with leases(clock=time.clock, wait=time.wait).lease(with_ranks(NVL, 2), "mine", notes):
        gpus.change(0, free_bytes=free - (2 << 30))
        gpus.change(1, processes=(OTHER,))
    (said,) = notes.said
    assert sorted(said.split("; ")) == [
        "GPU 0 has not got 2048 MiB of its memory back",
        "GPU 1 is still in use by process 4711 (python3, 1024 MiB)",
    ]
    assert 10 <= time.now < 11


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_shares_the_locks(tmp_path):
    locks = tmp_path / "locks"
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and "/pytest-of-" in str(parent):
            parent.chmod(parent.stat().st_mode | 0o711)
    gpus = FakeGpus(recorded("h100-pcie"))
    demand = Demand(sku=find_sku("h100-pcie-80gb"))
    leases = GpuLeases(gpus, directory=locks, environment={})
    with leases.lease(demand, "of root", Silent()):
        assert as_nobody(leases, demand) == "gpu-leased"
    assert as_nobody(leases, demand) == ""


def as_nobody(leases: GpuLeases, demand: Demand) -> str:
    """The reference that another user's lease is refused with; empty if it is granted."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        said = b"-"
        try:
            with leases.lease(demand, "of nobody", Silent()):
                said = b""
        except EngineCIError as error:
            said = error.name.encode()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        os.waitpid(child, 0)
        return answer.read()


def test_a_directory_that_cannot_be_used_is_told(gpus, tmp_path):
    (tmp_path / "file").write_text("")
    leases = GpuLeases(gpus, directory=tmp_path / "file" / "locks", environment={})
    with pytest.raises(Unavailable) as caught, leases.lease(NVL, "mine", Silent()):
        pass
    assert caught.value.name == "gpu-locks-not-usable"


def test_a_link_in_place_of_a_lock_is_not_followed(leases, gpus, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    locks = tmp_path / "locks"
    locks.mkdir()
    for board in gpus.inventory.boards:
        (locks / f"{board.uuid}.lock").symlink_to(victim)
    with pytest.raises(Unavailable), leases().lease(NVL, "mine", Silent()):
        pass
    assert victim.read_text() == "precious"


def test_the_directory_of_locks_is_one_that_every_user_may_write():
    assert lock_directory().parent.stat().st_mode & 0o1777 == 0o1777


@dataclass
class Recording:
    """A runner that only remembers what it was given."""

    seen: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, step, paths, progress):
        self.seen.append(paths.gpus)
        return StepResult(wall_s=0.0, peak_rss_bytes=None)


def test_a_runner_gives_each_step_exactly_the_boards_it_needs(leases, gpus, tmp_path):
    inner = Recording()
    runner = LeasingRunner(inner, leases=leases(), demand=NVL, holder="llama/fp8")
    paths = StepPaths(lock=tmp_path, output=tmp_path, scratch=tmp_path, log=tmp_path / "log")
    for count in (0, 1, 2):
        step = Step(
            name="toy", title="Toy", argv=("x",), outputs=("o",), gpus=count, key=Digest.of(b"")
        )
        runner.run(step, paths, Silent())
    uuids = {board.uuid for board in gpus.inventory.boards}
    assert [len(seen) for seen in inner.seen] == [0, 1, 2]
    assert set(inner.seen[2]) == uuids


def test_a_step_without_gpus_needs_no_driver(tmp_path):
    nobody = SimpleNamespace(read=lambda: pytest.fail("the driver was asked"))
    leases = GpuLeases(nobody, directory=tmp_path, environment={})
    runner = LeasingRunner(Recording(), leases=leases, demand=NVL, holder="x")
    step = Step(name="toy", title="Toy", argv=("x",), outputs=("o",), key=Digest.of(b""))
    paths = StepPaths(lock=tmp_path, output=tmp_path, scratch=tmp_path, log=tmp_path / "log")
    runner.run(step, paths, Silent())
