"""How often a comparison is wrong, played out on times that real servers showed.

A round is two different quiet runs of one recorded session, their requests drawn again with
replacement. The two were minutes apart at times, which makes such a round noisier than a real one:
log ratios deviate by 0.14, those of the ten quiet rounds that were really recorded by 0.07 to 0.11.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest

from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.paired import compare, why_dropped
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import PairedRound, PairedRun, Side

DATA = Path(__file__).parents[2] / "data" / "gates" / "paired-noise.json"
BARS = PairedBars(against="prod")
GATES = 200
SLOWER = 1.1


@cache
def sessions() -> list[list[dict]]:
    """The recorded runs that count as quiet under the default rule."""
    recorded = json.loads(DATA.read_text())["sessions"]
    quiet = [[run for run in one if not disturbed(run)] for one in recorded]
    return [one for one in quiet if len(one) > 1]


def disturbed(recorded: dict) -> bool:
    runs = tuple(as_run(side, recorded, recorded["ttft_ms"], recorded["tpot_ms"]) for side in Side)
    return why_dropped(runs, BARS) is not None


def as_run(side: Side, recorded: dict, ttft, tpot) -> PairedRun:
    return PairedRun.model_construct(
        side=side,
        load_s=1.0,
        foreign_cpu=recorded["foreign_cpu"],
        failed={},
        unreached=0,
        ttft_ms=tuple(ttft),
        tpot_ms=tuple(tpot),
        output_tokens_per_s=None,
    )


def drawn(draw: random.Random, slower: dict[str, float]) -> PairedRound:
    """One round: two runs of the same engine, one of them made slower."""
    [session] = draw.choices(sessions(), weights=[len(one) for one in sessions()])
    runs = []
    for side, recorded in zip(Side, draw.sample(session, 2), strict=True):
        picked = draw.choices(range(len(recorded["ttft_ms"])), k=len(recorded["ttft_ms"]))
        scale = slower if side is Side.CANDIDATE else {}
        times = {
            name: [recorded[f"{name}_ms"][at] * scale.get(name, 1.0) for at in picked]
            for name in ("ttft", "tpot")
        }
        runs.append(as_run(side, recorded, times["ttft"], times["tpot"]))
    return PairedRound.model_construct(number=1, runs=tuple(runs), dropped=None)


def outcome_of_a_gate(draw: random.Random, slower: dict[str, float]) -> Outcome:
    """As `compare_engines` decides: a look, and while it is open twice as many rounds."""
    rounds: list[PairedRound] = []
    outcome = Outcome.INCONCLUSIVE
    for look in BARS.looks:
        rounds += [drawn(draw, slower) for _ in range(look - len(rounds))]
        outcome = combine(one.outcome for one in compare(rounds, BARS))
        if outcome is not Outcome.INCONCLUSIVE:
            return outcome
    return outcome


def outcomes(seed: int, **slower: float) -> list[Outcome]:
    draw = random.Random(seed)
    return [outcome_of_a_gate(draw, slower) for _ in range(GATES)]


def test_there_is_noise_and_enough_of_it():
    assert sum(len(one) for one in sessions()) >= 10
    assert max(len(set(run["ttft_ms"])) for one in sessions() for run in one) >= 8


def test_an_engine_against_itself_passes_in_99_of_100_gates():
    found = outcomes(1)
    assert found.count(Outcome.PASSED) >= 0.99 * GATES


@pytest.mark.parametrize("series", ["ttft", "tpot"])
def test_a_slowdown_of_ten_per_cent_is_caught_in_95_of_100_gates(series):
    found = outcomes(2, **{series: SLOWER})
    assert found.count(Outcome.FAILED) >= 0.95 * GATES


def test_a_speedup_passes_as_the_same_engine_does():
    found = outcomes(3, ttft=1 / SLOWER, tpot=1 / SLOWER)
    assert found.count(Outcome.PASSED) >= 0.99 * GATES


def test_faster_tokens_do_not_buy_a_slower_first_token():
    found = outcomes(4, ttft=SLOWER, tpot=0.5)
    assert found.count(Outcome.FAILED) >= 0.95 * GATES
