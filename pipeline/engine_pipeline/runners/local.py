"""Runs steps as processes of this machine, each under a guard that ends it with this process."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from engine_pipeline.build.machine import free_disk_bytes
from engine_pipeline.build.plan import fill
from engine_pipeline.runners import guard
from engine_pipeline.runners.environment import secrets_of, step_environment, without_secrets
from engine_pipeline.runners.port import StepFailed, StepResult
from engine_pipeline.runners.protocol import parse_error, relay
from engine_pipeline.runners.step_log import Lines, StepLog
from engine_registry.errors import Incompatible, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.build.plan import Step
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import StepPaths
    from engine_registry.errors import EngineCIError

# Silence this long means that nothing will come: every step of ours speaks twice a second, and
# compilers of large engines write a line within minutes.
STALL_TIMEOUT_S = 1800.0
TIMEOUT_S = 24 * 3600.0
_TICK_S = 0.5
# Without a word on progress for this long, the time that the step has taken is told instead.
_BEAT_S = 5.0
_READ_BYTES = 64 << 10
_NO_SPACE = "No space left on device"
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How a step's process ended."""

    status: int
    wall_s: float
    peak_rss_bytes: int | None
    error: EngineCIError | None
    tail: tuple[str, ...]


class LocalRunner:
    """Steps as child processes.

    Args:
        stall_timeout_s: longest silence of a step.
        timeout_s: longest run of a step.
        beat_s: how long a step may say nothing of its progress before the time it took is told.
    """

    def __init__(
        self,
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        timeout_s: float = TIMEOUT_S,
        beat_s: float = _BEAT_S,
    ) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._timeout_s = timeout_s
        self._beat_s = beat_s

    def run(self, step: Step, paths: StepPaths, progress: Progress) -> StepResult:
        """Run it; see `Runner.run`."""
        if step.image is not None:
            raise Incompatible(
                f"step {step.name} wants the image {step.image}, this runner has no containers",
                hint="use a runner with containers for this spec",
                reference="runner-without-images",
            )
        ending = self._execute(step, paths, progress)
        if ending.status:
            raise _failure(step, paths, ending)
        return StepResult(wall_s=ending.wall_s, peak_rss_bytes=ending.peak_rss_bytes)

    def _execute(self, step: Step, paths: StepPaths, progress: Progress) -> _Ending:
        values = {"python": sys.executable, "lock": str(paths.lock), "output": str(paths.output)}
        values |= {f"input:{name}": str(path) for name, path in paths.inputs.items()}
        environment = step_environment(step.env, paths.scratch, os.environ) | step.variables
        if paths.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(paths.gpus)
        report = paths.scratch / ".usage.json"
        started = time.monotonic()
        process = subprocess.Popen(
            guard.command(fill(step.argv, values), report=report),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=paths.scratch,
            env=environment,
            # Ctrl-C reaches this process alone, which then ends the step in order.
            start_new_session=True,
        )
        secrets = secrets_of({name: environment.get(name, "") for name in step.env})
        with process, paths.log.open("wb") as stream:
            log = StepLog(stream)
            try:
                error = self._follow(step, process, secrets, log, progress)
            finally:
                _stop(process)
        wall_s = time.monotonic() - started
        return _Ending(
            status=process.returncode,
            wall_s=round(wall_s, 3),
            peak_rss_bytes=_peak_rss_bytes(report),
            error=error,
            tail=log.tail,
        )

    def _follow(
        self,
        step: Step,
        process: subprocess.Popen[bytes],
        secrets: tuple[str, ...],
        log: StepLog,
        progress: Progress,
    ) -> EngineCIError | None:
        """Relay what the process says until it ends; the error it ended with, if it said one."""
        error: EngineCIError | None = None
        started = heard = told = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, Lines())
            while selector.get_map():
                ended = process.poll() is not None
                ready = selector.select(0 if ended else _TICK_S)
                for key, _ in ready:
                    heard = time.monotonic()
                    piece = os.read(key.fd, _READ_BYTES)
                    for text in key.data.feed(piece):
                        line = without_secrets(text, secrets)
                        if key.fileobj is process.stdout and relay(line, progress):
                            told = heard
                            continue
                        found = parse_error(line) if key.fileobj is process.stderr else None
                        error = found or error
                        if found is None:
                            log.add(line)
                    if not piece:
                        selector.unregister(key.fileobj)
                if ended and not ready:
                    # Something that left the step's session still holds its pipes.
                    break
                self._check_time(step, started, heard)
                if time.monotonic() - told > self._beat_s:
                    told = time.monotonic()
                    progress.update(round(told - started), None, "seconds")
        process.wait()
        return error

    def _check_time(self, step: Step, started: float, heard: float) -> None:
        now = time.monotonic()
        if now - heard > self._stall_timeout_s:
            raise Unavailable(
                f"step {step.name} has said nothing for {self._stall_timeout_s:g} s",
                hint="run the same command again: finished steps are kept",
                reference="step-stalled",
            )
        if now - started > self._timeout_s:
            raise Unavailable(
                f"step {step.name} has run for {self._timeout_s:g} s and is not done",
                hint="run the same command again: finished steps are kept",
                reference="step-timed-out",
            )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the guard and, through it, everything it started."""
    stdin: BinaryIO | None = process.stdin  # type: ignore[assignment]
    if stdin is not None:
        stdin.close()
    try:
        process.wait(guard.GRACE_S + 3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _peak_rss_bytes(report: Path) -> int | None:
    try:
        return int(json.loads(report.read_bytes())["peak_rss_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _failure(step: Step, paths: StepPaths, ending: _Ending) -> EngineCIError:
    said = ending.error
    reason = said.name if said is not None else _unsaid_reason(ending)
    if reason == "host-memory-exhausted":
        peak = _gib(ending.peak_rss_bytes) if ending.peak_rss_bytes else "unknown"
        return Unavailable(
            f"step {step.name} was killed, as the kernel does when host memory runs out: peak "
            f"{peak}, expected {_gib(step.ram_bytes)}",
            hint="free memory or use a larger machine, then run the same command again",
            reference="out-of-host-memory",
        )
    if reason == "disk-full":
        return Unavailable(
            f"step {step.name} ran out of disk: its output needs about {_gib(step.disk_bytes)}, "
            f"{_gib(free_disk_bytes(paths.output))} free in {paths.output.parent}",
            hint="free space there, or choose another place with --cache-dir",
            reference="disk-full",
        )
    if said is not None:
        return said
    last = ending.tail[-1] if ending.tail else "it printed nothing"
    failed = StepFailed(
        f"step {step.name} failed with exit code {ending.status}: {last}",
        hint=f"read its output in {paths.log}",
    )
    failed.tail = ending.tail
    return failed


def _unsaid_reason(ending: _Ending) -> str:
    """What a process that did not explain itself died of, as far as its status and text tell."""
    if ending.status in {_KILLED, -signal.SIGKILL}:
        return "host-memory-exhausted"
    return "disk-full" if any(_NO_SPACE in line for line in ending.tail) else ""


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f} GiB"
