"""Two engines in turn, each on a fresh server: real processes of known delays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import Baseline, Side
from engine_pipeline.gates.paired_run import compare_engines
from engine_pipeline.gates.server import Server, serving
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest

PATIENCE_S = 30.0
BASELINE = Baseline(named="m/t/prod", engine=Digest.of(b"live"), release="m/t:1")
SERVER = "engine_pipeline.gates.testing.chat_server"


class Heard(Silent):
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def phase(self, name: str, detail: str = "") -> None:
        self.said.append(f"{name}: {detail}")

    def note(self, text: str) -> None:
        self.said.append(text)


@dataclass
class Engine:
    """Chat servers of one behaviour; counts those that are up, over all engines of a test."""

    name: str
    directory: Path
    behaviour: dict[str, object]
    up: list[str]
    options: tuple[str, ...] = ()
    is_ours: bool = False
    pids: list[int] = field(default_factory=list)

    @contextmanager
    def serve(self):
        assert not self.up, f"{self.up} is up when {self.name} starts"
        command = ServeCommand(
            argv=(
                "{python}", "-m", SERVER, "--port", "{port}",
                "--behaviour", json.dumps(self.behaviour), *self.options,
            ),
            model_name="engine",
        )  # fmt: skip
        log_path = self.directory / f"{self.name}.log"
        with serving(
            command, self.directory, progress=Silent(), log_path=log_path, timeout_s=PATIENCE_S
        ) as server:
            self.up.append(self.name)
            self.pids.append(int(log_path.read_text().split("process ")[1].split()[0]))
            try:
                yield server
            finally:
                self.up.remove(self.name)


def bars(**changes: object) -> PairedBars:
    fields = {"against": "prod", "requests": 8, "output_tokens": 4, "rounds": 6, "max_rounds": 6}
    return PairedBars.model_validate({**fields, **changes})


def compare(tmp_path: Path, mine: Engine, theirs: Engine, progress=None, **changes: object):
    return compare_engines(
        candidate=mine,
        live=theirs,
        baseline=BASELINE,
        bars=bars(**changes),
        timeout_s=PATIENCE_S,
        progress=progress or Silent(),
        directory=tmp_path,
    )


@pytest.fixture
def engine(tmp_path: Path):
    up: list[str] = []

    def make(name: str, *options: str, **behaviour: object) -> Engine:
        return Engine(name, tmp_path, behaviour, up, options)

    return make


@dataclass
class Standing:
    """An engine whose one server answers in every round."""

    server: Server
    is_ours: bool

    @contextmanager
    def serve(self):
        yield self.server


@pytest.fixture
def standing(tmp_path: Path):
    """Makes engines for tests of the verdict, which is no other for servers that stay up."""
    with ExitStack() as until_the_end:

        def make(name: str, *, is_ours: bool = False, **behaviour: object) -> Standing:
            alone = Engine(name, tmp_path, behaviour, up=[])
            return Standing(until_the_end.enter_context(alone.serve()), is_ours)

        yield make


def test_a_candidate_that_is_far_slower_fails_and_the_order_turns_from_round_to_round(
    tmp_path, engine
):
    heard = Heard()
    mine, theirs = engine("mine", ttft_s=0.04), engine("theirs", ttft_s=0.01)
    result = compare(tmp_path, mine, theirs, heard)
    assert result.outcome is Outcome.FAILED
    by_metric = {one.metric: one for one in result.comparisons}
    assert by_metric["ttft_p50_ms"].outcome is Outcome.FAILED
    assert by_metric["ttft_p50_ms"].low > 1
    assert "ttft_p50_ms" in result.reason
    firsts = [made.runs[0].side for made in result.rounds]
    assert firsts == [Side.CANDIDATE, Side.LIVE] * 3
    assert len(set(mine.pids + theirs.pids)) == 12
    rounds = [text for text in heard.said if "round" in text]
    assert rounds[0] == "paired: round 1 (0 of 6 count): candidate engine"
    assert rounds[-1] == "paired: round 6 (5 of 6 count): candidate engine"
    assert result.client is not None
    assert 0 < result.client.ttft_p50_ms <= result.client.ttft_p95_ms


def test_a_candidate_that_is_far_faster_passes(tmp_path, standing):
    mine, theirs = (
        standing("mine", ttft_s=0.01, gap_s=0.002),
        standing("theirs", ttft_s=0.04, gap_s=0.01),
    )
    result = compare(tmp_path, mine, theirs)
    assert result.outcome is Outcome.PASSED
    assert result.throughput_ratio > 1


def test_more_tokens_per_second_do_not_make_up_for_a_slower_first_token(tmp_path, standing):
    mine = standing("mine", ttft_s=0.04, gap_s=0.0)
    theirs = standing("theirs", ttft_s=0.01, gap_s=0.02)
    result = compare(tmp_path, mine, theirs)
    assert result.throughput_ratio > 1
    assert result.outcome is Outcome.FAILED


def test_a_server_without_usage_cannot_be_judged(tmp_path, standing):
    result = compare(tmp_path, standing("mine", usage=False), standing("theirs", ttft_s=0.05))
    assert result.outcome is Outcome.ERRORED
    assert (
        "the server sends no usage" in result.reason or "a server sends no usage" in result.reason
    )


def test_when_every_round_is_disturbed_the_verdict_is_open_and_says_so(tmp_path, standing):
    # A server in a session of its own is still a descendant, so what is foreign is all the rest:
    # with a bar that nothing meets, every round is dropped. Each takes long enough to be told of by
    # a clock of processor time that ticks a hundred times a second.
    heard = Heard()
    mine, theirs = (standing(name, is_ours=True, ttft_s=0.02) for name in ("mine", "theirs"))
    with busy():
        result = compare(tmp_path, mine, theirs, heard, requests=8, max_foreign_cpu=0.01)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.counted == ()
    assert len(result.rounds) == 7
    assert (
        "0 rounds count, 7 were dropped: the machine is too disturbed for a verdict"
        in result.reason
    )
    assert "at most 1% counts as quiet" in result.rounds[0].dropped
    assert any("round 1 does not count" in text for text in heard.said)


@contextmanager
def busy():
    """Somebody else's work: a process that is no descendant of this one."""
    script = (
        "import os, sys\nif os.fork(): sys.exit()\nos.setsid()\n"
        "print(os.getpid(), flush=True)\nwhile True: pass"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as one:
        pid = int(one.stdout.readline())
        one.stdout.close()
        one.wait()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_round_in_which_the_live_engine_fails_requests_does_not_count(tmp_path, standing):
    result = compare(tmp_path, standing("mine"), standing("theirs", status=500))
    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.rounds[0].dropped == "requests of the live engine failed: 8 http-500"


def test_a_candidate_that_fails_requests_is_slower_beyond_measure(tmp_path, standing):
    result = compare(tmp_path, standing("mine", error_after=1), standing("theirs"))
    assert result.outcome is Outcome.FAILED
    assert result.comparisons[0].ratio == pytest.approx(100)


@pytest.mark.parametrize(
    ("side", "wanted"), [("mine", Outcome.FAILED), ("theirs", Outcome.ERRORED)]
)
def test_a_server_that_does_not_load_ends_it_and_only_the_candidate_is_to_blame(
    tmp_path, engine, side, wanted
):
    engines = {name: engine(name) for name in ("mine", "theirs")}
    engines[side].options = ("--exit-at-load", "1")
    result = compare(tmp_path, engines["mine"], engines["theirs"])
    assert result.outcome is wanted
    assert result.trouble is not None
    assert result.rounds == ()


@pytest.mark.parametrize(
    ("side", "wanted"), [("mine", Outcome.FAILED), ("theirs", Outcome.ERRORED)]
)
def test_a_server_that_crashes_under_the_load_ends_it(tmp_path, engine, side, wanted):
    engines = {name: engine(name) for name in ("mine", "theirs")}
    engines[side].behaviour = {"exit_after": 2}
    result = compare(tmp_path, engines["mine"], engines["theirs"])
    assert result.outcome is wanted
    assert "exited with code 70" in result.reason


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.unit.gates.test_paired_run import Engine, Heard, compare
class Loud(Heard):
    def phase(self, name, detail=""):
        print(name, detail, flush=True)
up = []
make = lambda name: Engine(name, Path({directory!r}), {{"ttft_s": 0.05}}, up)
compare(Path({directory!r}), make("mine"), make("theirs"), Loud())
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_server_is_left_when_it_is_stopped_in_the_middle_of_a_round(tmp_path, how):
    script = SCRIPT.format(root=str(Path(__file__).parents[3]), directory=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        for line in process.stdout:
            if "round 2" in line:
                process.send_signal(how)
                break
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    deadline = time.monotonic() + PATIENCE_S
    while (left := servers_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def servers_of(directory: Path) -> list[str]:
    """Command lines of living chat servers whose log is in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                where = (entry / "cwd").readlink()
            except OSError:
                continue
            if SERVER in command and where == directory:
                found.append(command)
    return found
