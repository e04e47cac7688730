"""Many processes at once on one registry."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.registry import open_registry
from engine_registry.testing.samples import (
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    sample_engine,
    sample_release,
)
from engine_registry.verify import verify

RACER = Path(__file__).with_name("racer.py")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def race(root: Path, task: str, count: int) -> list[dict[str, Any]]:
    """The answers of `count` processes that were let go together."""
    racers = subprocess.run(
        [sys.executable, str(RACER), str(root), task, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    answers = [json.loads(line) for line in racers.stdout.splitlines()]
    assert len(answers) == count
    return answers


def moves_in_one_order(root: Path, promoters: int) -> str:
    """Each moves the channel once, deciding again when overtaken; the order, in words."""
    registry = open_registry(str(root))
    registry.stores.blobs.add_bytes(b"founds it")
    began = time.monotonic()
    answers = race(root, "move_until_won", promoters)
    took_s = time.monotonic() - began
    assert sorted(answer["won"] for answer in answers) == list(range(1, promoters + 1))
    events = registry.channels.events(SAMPLE_CHANNEL)
    assert [event.number for event, _ in events] == list(range(1, promoters + 1))
    assert len({event.actor.name for event, _ in events}) == promoters
    for (_, before), (event, _) in pairwise(events):
        assert event.previous == before
    report = verify(registry)
    assert report.mismatches == ()
    assert registry.channels.state(SAMPLE_CHANNEL).number == promoters
    return (
        f"{promoters} processes, events 1 to {events[-1][0].number} without a gap, {took_s:.1f} s"
    )


def test_invariant_5_of_32_processes_moving_one_channel_exactly_one_wins_each_event(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    proved(moves_in_one_order(tmp_path / "registry", 32))


@pytest.mark.nightly
def test_invariant_5_of_64_processes_moving_one_channel_exactly_one_wins_each_event(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    proved(moves_in_one_order(tmp_path / "registry", 64))


def test_invariant_5_of_16_processes_deciding_on_the_same_event_one_wins_and_15_change_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "registry"
    registry = open_registry(str(root))
    registry.stores.blobs.add_bytes(b"founds it")
    answers = race(root, "move_once", 16)
    assert sorted((answer["won"] or 0) for answer in answers) == [0] * 15 + [1]
    assert names(root / layout.events(SAMPLE_CHANNEL)) == ["0000000001.json"]


def test_16_processes_cutting_releases_and_adding_the_same_blob_lose_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "registry"
    shared = os.urandom(3_000_000)
    (tmp_path / "shared.bin").write_bytes(shared)
    registry = open_registry(str(root))
    sample_release(registry, sample_engine(registry))
    answers = race(root, "release_and_blob", 16)
    assert sorted(answer["number"] for answer in answers) == list(range(2, 18))
    releases = registry.releases.releases(SAMPLE_PRODUCT)
    assert [release.number for release in releases] == list(range(1, 18))
    assert len({release.content.tokenizer for release in releases}) == 17
    assert (root / layout.blob(Digest.of(shared))).read_bytes() == shared
    assert verify(registry).mismatches == ()


def test_16_processes_founding_one_registry_agree_on_it(tmp_path: Path) -> None:
    answers = race(tmp_path / "registry", "found", 16)
    assert len({answer["created_at"] for answer in answers}) == 1
    assert len(names(tmp_path / "registry" / "records")) == 16
