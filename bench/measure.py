"""What every benchmark here shares: interleaved repeats, one table form, the machine, the scratch.

A ratio is always the peer's median over the row's: `0.97 ×` of hashing alone is 97 % of its speed,
`12 ×` of `dvc` is twelve times as fast. Repeats are interleaved (A B A B), so that a slow minute of
the machine falls on every row alike. Nothing here decides whether a figure is good enough.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
# What keeps the peers' command lines from calling home, so that they are measured at their best.
PEER_ENV = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# Above this many runnable processes besides ours, a table says that its figures are disturbed.
QUIET_LOAD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row: `run` is timed, `before` and `after` are not."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


@dataclass(slots=True)
class Table:
    """Rows of samples in seconds, printed with the ratios asked for.

    Attributes:
        peers: heading of a ratio column → the row it is taken against.
        scale: what a second is multiplied by for print: 1000 and `ms`, or 1 and `s`.
        amount_gb: if set, speed is printed too.
    """

    title: str
    peers: Mapping[str, str]
    unit: str = "s"
    scale: float = 1.0
    digits: int = 2
    amount_gb: float | None = None
    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, samples: Mapping[str, list[float]]) -> None:
        """Add rows in order."""
        self.rows.update(samples)

    def print(self) -> None:
        """Write the table as Markdown to standard output."""
        print(f"\n{self.title}\n")
        heads = ["", "n", *(f"{name}, {self.unit}" for name in ("median", "min", "max"))]
        heads += ["GB/s"] if self.amount_gb else []
        heads += [f"× {name}" for name in self.peers]
        body = [self._cells(name, samples) for name, samples in self.rows.items()]
        widths = [max(len(row[i]) for row in [heads, *body]) for i in range(len(heads))]
        for row in [heads, ["-" * width for width in widths], *body]:
            cells = [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print(f"| {' | '.join(cells)} |")
        sys.stdout.flush()

    def _cells(self, name: str, samples: list[float]) -> list[str]:
        median = statistics.median(samples)
        shown = [median, min(samples), max(samples)]
        cells = [name, str(len(samples)), *(f"{v * self.scale:.{self.digits}f}" for v in shown)]
        if self.amount_gb:
            cells.append(f"{self.amount_gb / median:.2f}")
        for peer in self.peers.values():
            held = self.rows.get(peer)
            ratio = statistics.median(held) / median if held else None
            cells.append("-" if ratio is None or peer == name else _ratio(ratio))
        return cells


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 3 else f"{value:.2f}"


def interleaved(cases: Sequence[Case], repeats: int, warm_up: int = 0) -> dict[str, list[float]]:
    """Seconds of `repeats` runs of every case, in turn; `warm_up` rounds more are not counted."""
    samples: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(warm_up + repeats):
        for case in cases:
            case.before()
            began = time.perf_counter()
            case.run()
            took = time.perf_counter() - began
            case.after()
            if number >= warm_up:
                samples[case.name].append(took)
    return samples


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: a value that was measured."""
    ordered = sorted(samples)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def command(
    *argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """What a whole process prints; one that fails ends the benchmark with its own words."""
    done = subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env={**os.environ, **PEER_ENV, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def enginectl() -> Path:
    """The `enginectl` of the environment that runs this benchmark."""
    return Path(sys.executable).parent / "enginectl"


def peer(name: str) -> Path | None:
    """A program of the peers' environment; None, and a line that says so, where it is missing."""
    path = ROOT / ".venv-peers" / "bin" / name
    if path.is_file():
        return path
    print(f"no {name} in {path.parent}: its rows are left out; `make bench-peers` installs it")
    return None


def arguments(doc: str | None, **extra: tuple[float, str]) -> argparse.Namespace:
    """The options of a benchmark: --quick, --dir, --repeats and those in `extra`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still run?")
    parser.add_argument("--dir", type=Path, default=None, help="scratch space (default: $TMPDIR)")
    for name, (default, text) in extra.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    return parser.parse_args()


@contextmanager
def bench(doc: str | None, parent: Path | None) -> Iterator[Path]:
    """Print claim and machine, lend a scratch directory, remove it, whatever happens."""
    scratch = Path(tempfile.mkdtemp(prefix="engine-ci-bench-", dir=parent))
    print((doc or "").strip().split("\n\n", maxsplit=1)[0])
    print(f"\n{machine(scratch)}")
    try:
        yield scratch
    finally:
        remove(scratch)
        load = os.getloadavg()[0]
        print(f"\nload average at the end {load:.1f}")


def remove(path: Path) -> None:
    """Remove a tree; `rm` is several times faster than Python on a million files."""
    subprocess.run(["rm", "-rf", "--", str(path)], check=False)


def machine(scratch: Path) -> str:
    """One line that says where figures were taken and whether anything else was running."""
    load = os.getloadavg()[0]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    disturbed = "" if load < QUIET_LOAD else " (other work is running: expect noise)"
    return ", ".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
            _cpu(),
            f"{len(os.sched_getaffinity(0))} cores",
            f"{memory_gb:.0f} GB",
            f"{_file_system(scratch)} with {shutil.disk_usage(scratch).free / 1e9:.0f} GB free",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
            ssl.OPENSSL_VERSION.rsplit(" ", 3)[0],
            f"load {load:.1f}{disturbed}",
        ]
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    fitting = [mount for mount in mounts if path.is_relative_to(mount[1])]
    device, _, kind, *_ = max(fitting, key=lambda mount: len(mount[1]))
    return f"{kind} on {device}"
