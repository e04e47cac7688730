"""Whatever bytes come from outside: one clear error or a value, never a crash and never a hang.

Each parser is fed good examples that were damaged at random: bits flipped, pieces cut, doubled,
swapped, spliced in from other examples or from a list of what attackers like. A few hundred inputs
each here, over a million in all in the nightly run (`ENGINE_CI_FUZZ_INPUTS` sets the number each).
A failure names the seed; `damaged(examples, seed)` gives the same bytes again.

At night a fuzzer (`guided.py`) also chooses inputs by the code that they reach.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.properties.ways_in import HANG_S, PARSERS, fed, room

INPUTS = int(os.environ.get("ENGINE_CI_FUZZ_INPUTS", "150"))
NIGHTLY_INPUTS = 70_000
GUIDED_S = 60
ROOT = Path(__file__).resolve().parents[2]
TOKENS = (
    b"../../etc/passwd\0/abs\0\xff\xfe\xed\xa0\x80\0&a [*a,*a,*a]\0{}\0[]\0null\0-1\0"
    b"99999999999999999999999999\x001e999\0NaN\0Infinity\0true\0\\u0000\0\\ud800\0!!python/object:os\0"
    b"\x1b[2J\0\xe2\x80\xae\0"
    b"<<: *x\0--help\0$(id)\0`id`\0;id\0%2e%2e\0sha256:\0sha512:00\0: : :\0\t\0\r\n\0\"\0'\0|\0>\0?"
).split(b"\0")


def damaged(examples: tuple[bytes, ...], seed: int) -> bytes:
    """A good example with one to six random injuries."""
    dice = random.Random(seed)
    data = bytearray(dice.choice(examples))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data) + 1)
        length = dice.choice((1, 1, 2, 4, 16, 64))
        match dice.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << dice.randrange(8)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length] * dice.choice((1, 2, 30))
            case 3:
                data[at:at] = dice.choice(TOKENS)
            case 4:
                data[at : at + length] = dice.choice(TOKENS)
            case 5:
                other = dice.choice(examples)
                start = dice.randrange(len(other) + 1)
                data[at : at + length] = other[start : start + dice.choice((8, 64, 256))]
            case 6:
                del data[at:]
            case _:
                nest = dice.choice((b"[", b"{", b"(", b"- ", b'{"a":', b"[["))
                data[at:at] = nest * dice.choice((3, 100, 3000))
    return bytes(data)


@contextmanager
def no_hang() -> Iterator[None]:
    """An exception in whatever takes longer than HANG_S."""

    def stop(_: int, __: object) -> None:
        raise TimeoutError(f"no answer within {HANG_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def feed(kind: str, seeds: range, folder: Path) -> dict[str, int]:
    """Feed the parser; how many inputs were taken, and how many refused."""
    parser = PARSERS[kind]
    counts = {"taken": 0, "refused": 0}
    for seed in seeds:
        data = damaged(parser.examples, seed)
        try:
            with no_hang():
                taken = fed(parser, data, folder)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {type(error).__name__}: {error}") from error
        counts["taken" if taken else "refused"] += 1
    return counts


@pytest.fixture
def scratch() -> Iterator[Path]:
    with room() as folder:
        yield folder


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_good_examples_are_taken(kind, scratch):
    for example in PARSERS[kind].examples:
        if kind == "suite" and example.startswith(b"schema_version"):
            continue  # the head of a suite, here only to be spliced in
        if kind in {"plan header", "gguf"}:
            continue  # small enough to be damaged everywhere; real ones are read elsewhere
        PARSERS[kind].read(example, scratch)


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_damaged_input_gives_one_clear_error_or_a_value(kind, scratch, proved):
    counts = feed(kind, range(INPUTS), scratch)
    assert sum(counts.values()) == INPUTS
    assert counts["refused"]
    proved(str(counts))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_over_a_million_damaged_inputs_in_all(kind, scratch, proved):
    counts = feed(kind, range(INPUTS, INPUTS + NIGHTLY_INPUTS), scratch)
    proved(str(counts))
    assert len(PARSERS) * NIGHTLY_INPUTS >= 1_000_000


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_inputs_chosen_by_the_code_that_they_reach(kind, tmp_path, proved):
    pytest.importorskip("atheris", reason="atheris has builds for Linux on x86-64 only")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.properties.guided", kind, str(GUIDED_S), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10 * GUIDED_S,
        check=False,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]
    [inputs] = re.findall(r"number_of_executed_units: *([0-9]+)", ran.stderr)
    assert int(inputs) > len(PARSERS[kind].examples)
    proved(f"{inputs} inputs")
