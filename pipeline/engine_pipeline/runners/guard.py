"""Runs one command that can never outlive the process that wanted it.

    python -m engine_pipeline.runners.guard [--report FILE] [--parent PID] [--grace S] -- CMD ...

The command gets a session of its own, the guard's standard output and error, and nothing to read.
It is ended, with everything it started, when

    - the guard's standard input is a pipe and its other end closes, as by kill -9 of the parent
    - the guard's parent is another one than at the start
    - the guard gets SIGTERM, SIGINT or SIGHUP

first by SIGTERM and after `--grace` seconds by SIGKILL; should the guard itself be killed, the
kernel kills the command. The guard's exit status is the command's: its code, 128 + N if signal N
ended it, 126 or 127 if it could not be started. `--report` gets wall time, processor time and peak
memory as JSON.

Standard library only and no import from this package, so that it starts in 30 ms as a plain file.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

GRACE_S = 2.0
# How often the parent is looked at where the kernel does not tell of its death.
_LOOK_S = 1.0
_PR_SET_PDEATHSIG = 1
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CANNOT_RUN, _NO_SUCH_COMMAND = 126, 127


def command(argv: list[str], *, report: Path | None = None, grace_s: float = GRACE_S) -> list[str]:
    """The command that runs `argv` under a guard of this process.

    Give it a pipe as standard input and keep the other end open for as long as it may run.
    """
    options = ["--parent", str(os.getpid()), "--grace", str(grace_s)]
    if report is not None:
        options += ["--report", str(report)]
    # -I -S: no site packages, no environment, no current directory: three times faster to start.
    return [sys.executable, "-I", "-S", __file__, *options, "--", *argv]


class _Options:
    # No dataclass: importing it would take longer than everything else here.
    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.report: str | None = None
        self.parent: int | None = None
        self.grace_s = GRACE_S


def main(arguments: list[str]) -> int:
    """Run the command; its exit status."""
    options = _parse(arguments)
    parent = options.parent or os.getppid()
    wake = _wake_pipe()
    _die_with_parent(signal.SIGUSR1)
    started = time.monotonic()
    child = _start(options.argv)
    _watch(child, parent, options.grace_s, wake)
    # What the command started and left behind is still in its group, which cannot be another's
    # before the command is reaped.
    _signal_group(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if options.report:
        import json

        # Kibibytes on Linux, bytes on macOS (getrusage).
        unit = 1 if sys.platform == "darwin" else 1024
        facts = {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "wall_s": round(time.monotonic() - started, 3),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
            "peak_rss_bytes": usage.ru_maxrss * unit,
        }
        with open(options.report, "w") as report:  # noqa: PTH123  # pathlib is slow to import
            json.dump(facts, report)
    return code if code >= 0 else 128 - code


def _parse(arguments: list[str]) -> _Options:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = _Options(arguments[at + 1 :])
    names = iter(arguments[:at])
    for name in names:
        value = next(names, "")
        if name == "--report":
            options.report = value
        elif name == "--parent" and value.isdigit():
            options.parent = int(value)
        elif name == "--grace" and value.replace(".", "", 1).isdigit():
            options.grace_s = float(value)
        else:
            sys.exit(f"guard: unknown option {name} {value}")
    if not options.argv:
        sys.exit("guard: no command after --")
    return options


def _wake_pipe() -> int:
    """A descriptor that gets readable when a child ends or a signal arrives."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, *_ENDINGS):
        signal.signal(number, lambda *_: None)
    return read


def _die_with_parent(number: int) -> None:
    """Have the kernel send `number` when the parent ends (Linux).

    It is sent too when only the thread that started us ends, so a receiver must look again.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _start(argv: list[str]) -> int:
    """Start the command in its own session; if that fails, the child says so: 126 or 127."""
    guard = os.getpid()
    set_up, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        # Ends when the command has begun or failed to: before that it has no session to signal.
        os.read(set_up, 1)
        os.close(set_up)
        return child
    status = _CANNOT_RUN
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGUSR1, *_ENDINGS):
            signal.signal(number, signal.SIG_DFL)
        _die_with_parent(signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(status)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(argv[0], argv)
    except OSError as error:
        status = _NO_SUCH_COMMAND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
        os.write(2, f"guard: cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(status)


def _watch(child: int, parent: int, grace_s: float, wake: int) -> None:
    """Return when the child has ended, ended by us or by itself; it is not reaped yet."""
    sources = [wake]
    if stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode):
        sources.append(0)
    kill_at: float | None = None
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = _LOOK_S if kill_at is None else max(0.0, kill_at - time.monotonic())
        ready, _, _ = select.select(sources, [], [], min(left, _LOOK_S))
        ending = os.getppid() != parent
        if wake in ready:
            arrived = os.read(wake, 512)
            ending = ending or any(number in arrived for number in _ENDINGS)
        if 0 in ready and not os.read(0, 512):
            sources.remove(0)
            ending = True
        if kill_at is not None and time.monotonic() >= kill_at:
            _signal_group(child, signal.SIGKILL)
            kill_at = time.monotonic() + _LOOK_S
        elif ending and kill_at is None:
            _signal_group(child, signal.SIGTERM)
            kill_at = time.monotonic() + grace_s


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
