"""One build per GPU: boards are leased for as long as a step or a server needs them.

A lease is an exclusive lock on a file named after the board's UUID, in one directory for all users
of the machine; the kernel gives a dead process's locks up. Programs that know nothing of these
locks are seen through the driver: a board on which anybody computes is not leased.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.nvml.rules import fitting, lacks_memory
from engine_pipeline.nvml.visible import visible_boards
from engine_registry.errors import Conflict, EngineCIError, Incompatible, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from engine_pipeline.build.plan import Step
    from engine_pipeline.nvml.inventory import Board
    from engine_pipeline.nvml.reader import GpuReader
    from engine_pipeline.nvml.rules import Demand
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner, StepPaths, StepResult

# The driver gives memory back some time after a process has gone.
_SETTLE_S = 10.0
_LOOK_S = 0.25
# Left by a driver that keeps a context warm; far below any model.
_SLACK_BYTES = 512 << 20
_SHARED, _FALLBACK = Path("/run/lock"), Path("/tmp")
_ALL_MAY_WRITE = 0o1777


def lock_directory() -> Path:
    """Where every user of this machine looks for leases; decided by what it is, not by who asks."""
    for base in (_SHARED, _FALLBACK):
        with suppress(OSError):
            if base.stat().st_mode & _ALL_MAY_WRITE == _ALL_MAY_WRITE:
                return base / "engine-ci-gpus"
    return _FALLBACK / "engine-ci-gpus"


class GpuLeases:
    """Leases of this machine's boards.

    Args:
        reader: says what boards there are and who uses them.
        directory: of the locks; the same for everybody on the machine.
        environment: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER narrow the choice.
        sweep: ends what killed runs left running; called when some board is in use.
        clock, wait: monotonic seconds, and how to let some pass.
    """

    def __init__(
        self,
        reader: GpuReader,
        *,
        directory: Path,
        environment: Mapping[str, str],
        sweep: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = reader
        self._directory = directory
        self._environment = environment
        self._sweep = sweep
        self._clock = clock
        self._wait = wait

    @contextmanager
    def lease(self, demand: Demand, holder: str, progress: Progress) -> Iterator[tuple[Board, ...]]:
        """As many boards as demanded, nobody else's until the block ends.

        Whether their memory is free again is looked at afterwards, and said if it is not: the next
        lease would be refused.

        Args:
            demand: which boards, and how many.
            holder: who wants them, for whoever is refused because of it.
            progress: told of what stays on a board.

        Raises:
            Incompatible: this machine's boards do not fit; see `nvml.rules.fitting`.
            Conflict: `gpu-leased` or `gpu-in-use`, with who has it.
            Unavailable: `gpu-memory-held`.
        """
        with ExitStack() as stack:
            boards = self._take(stack, demand, holder)
            yield boards
            self._check_given_back(boards, progress)

    def _take(self, stack: ExitStack, demand: Demand, holder: str) -> tuple[Board, ...]:
        free: list[Board] = []
        refusals: list[Conflict | Unavailable] = []
        for board in self._candidates(demand):
            if len(free) == demand.ranks:
                break
            held = stack.enter_context(ExitStack())
            # Looked at under the lock: who had it may have gone, who waits for it cannot come.
            refused = self._lock(held, board, holder) or self._in_use(board, demand)
            if refused is None:
                free.append(board)
            else:
                held.close()
                refusals.append(refused)
        if len(free) < demand.ranks:
            raise refusals[0]
        return tuple(free)

    def _candidates(self, demand: Demand) -> tuple[Board, ...]:
        inventory = self._reader.read()
        fit = fitting(inventory, demand)
        if any(board.processes for board in fit):
            with suppress(EngineCIError):
                self._sweep()
        devices = self._environment.get("CUDA_VISIBLE_DEVICES")
        order = self._environment.get("CUDA_DEVICE_ORDER")
        allowed = {b.uuid for b in visible_boards(inventory.boards, devices, order)}
        chosen = tuple(board for board in fit if board.uuid in allowed)
        if len(chosen) < demand.ranks:
            raise Incompatible(
                f"{demand.ranks} × {demand.sku.name} needed, CUDA_VISIBLE_DEVICES={devices} leaves "
                f"{len(chosen)} of {len(fit)}",
                hint="name more boards in CUDA_VISIBLE_DEVICES, or unset it",
                reference="gpus-not-visible",
            )
        return chosen

    def _lock(self, stack: ExitStack, board: Board, holder: str) -> Conflict | None:
        descriptor = _open(self._directory, board.uuid)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(descriptor, 300, 0).decode(errors="replace") or "another process"
            return Conflict(
                f"GPU {board.index} ({board.name}, {board.uuid}) is leased to {other}",
                hint="wait until it has ended, or use another machine, then run it again",
                reference="gpu-leased",
            )
        # Another user's file can be locked by everybody and written by its owner only.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder}, process {os.getpid()}".encode(), 0)
        return None

    def _in_use(self, board: Board, demand: Demand) -> Conflict | Unavailable | None:
        now = self._now(board)
        if now.processes:
            return Conflict(
                f"GPU {now.index} ({now.name}, {now.uuid}) is in use by process "
                f"{', '.join(map(str, now.processes))}",
                hint="end that process or use another machine; builds and gates need the whole "
                "board, or what they measure is wrong",
                reference="gpu-in-use",
            )
        if says := lacks_memory(now, demand):
            return Unavailable(
                f"{says}, by no process that the driver names",
                hint="see `nvidia-smi`; a process in a container, or a board that wants a reset, "
                "may hold it",
                reference="gpu-memory-held",
            )
        return None

    def _now(self, board: Board) -> Board:
        return next((b for b in self._reader.read().boards if b.uuid == board.uuid), board)

    def _check_given_back(self, boards: tuple[Board, ...], progress: Progress) -> None:
        deadline = self._clock() + _SETTLE_S
        while held := [says for board in boards if (says := _still_held(board, self._now(board)))]:
            if self._clock() >= deadline:
                progress.note("; ".join(held))
                return
            self._wait(_LOOK_S)


class LeasingRunner:
    """Gives each step that needs GPUs exactly so many for as long as it runs.

    Args:
        inner: runs the steps.
        leases: of this machine.
        demand: the target's board; how many is the step's to say.
        holder: what is built, for whoever is refused because of it.
    """

    def __init__(self, inner: Runner, *, leases: GpuLeases, demand: Demand, holder: str) -> None:
        self._inner = inner
        self._leases = leases
        self._demand = demand
        self._holder = holder

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run it; see `Runner.run`.

        Raises:
            Incompatible, Conflict, Unavailable: no such GPUs, or they are not free; see
                `GpuLeases.lease`.
        """
        if not step.gpus:
            return self._inner.run(step, paths, progress)
        demand = dataclasses.replace(self._demand, ranks=step.gpus)
        with self._leases.lease(demand, f"{self._holder}, step {step.name}", progress) as boards:
            leased = dataclasses.replace(paths, gpus=tuple(board.uuid for board in boards))
            return self._inner.run(step, leased, progress)


def _open(directory: Path, uuid: str) -> int:
    """The board's lock file, which any user of the machine may lock."""
    try:
        if not directory.exists():
            directory.mkdir(parents=True, exist_ok=True)
            # Past the umask, and sticky: nobody removes another user's lock.
            with suppress(PermissionError):
                directory.chmod(_ALL_MAY_WRITE)
        path = directory / f"{uuid}.lock"
        with suppress(FileExistsError, PermissionError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor
        # Without O_CREAT: the kernel refuses that for another user's file in a sticky directory.
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except PermissionError:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise Unavailable(
            f"cannot use {directory} for GPU leases: {error.strerror or error}",
            hint=f"make it a directory that everybody may write: chmod 1777 {directory}",
            reference="gpu-locks-not-usable",
        ) from error


def _still_held(before: Board, now: Board) -> str:
    """What is on a board that was free before; empty if it is free again."""
    if now.processes:
        return f"GPU {now.index} is still in use by process {', '.join(map(str, now.processes))}"
    if before.free_bytes is None or now.free_bytes is None:
        return ""
    missing = before.free_bytes - now.free_bytes
    if missing <= _SLACK_BYTES:
        return ""
    return f"GPU {now.index} has not got {missing >> 20} MiB of its memory back"
