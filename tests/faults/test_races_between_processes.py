"""Many processes at once on one registry."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_invariant_5_of_32_processes_moving_one_channel_exactly_one_wins_each_event(
    tmp_path: Path,
) -> None:
    root = tmp_path / "registry"
    registry = open_registry(str(root))
    registry.stores.blobs.add_bytes(b"founds it")
    answers = race(root, "move_until_won", 32)
    assert sorted(answer["won"] for answer in answers) == list(range(1, 33))
    events = [event for event, _ in registry.channels.events(SAMPLE_CHANNEL)]
    assert [event.number for event in events] == list(range(1, 33))
    assert len({event.actor.name for event in events}) == 32
    report = verify(registry)
    assert report.mismatches == ()
    assert registry.channels.state(SAMPLE_CHANNEL).number == 32


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
