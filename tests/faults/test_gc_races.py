"""Writers and collectors at the same time: nothing that is reachable is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry.gc import Collector
from engine_registry.record import Actor
from engine_registry.registry import open_registry
from engine_registry.verify import verify
from tests.faults.collecting import PRODUCT, TIGHT
from tests.gc_world import assert_whole

SCRIPT = Path(__file__).with_name("collecting.py")
WRITERS, COLLECTORS = 8, 2
ROUNDS, NIGHTLY_ROUNDS = 10, int(os.environ.get("ENGINE_CI_GC_ROUNDS", "300"))


def test_invariant_8_eight_writers_and_two_collectors_lose_nothing(
    fast_dir: Path, proved: Callable[[str], None]
) -> None:
    proved(all_at_once(fast_dir / "registry", ROUNDS))


@pytest.mark.nightly
def test_invariant_8_eight_writers_and_two_collectors_lose_nothing_for_long(
    fast_dir: Path, proved: Callable[[str], None]
) -> None:
    proved(all_at_once(fast_dir / "registry", NIGHTLY_ROUNDS))


def all_at_once(root: Path, rounds: int) -> str:
    """Writers write so many rounds while collectors collect; what came of it, in words."""
    registry = open_registry(str(root))
    registry.stores.blobs.add_bytes(b"founds it")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(root), str(WRITERS), str(COLLECTORS), str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=3600,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    writers = [answer for answer in answers if "writer" in answer]
    collectors = [answer for answer in answers if "collector" in answer]
    assert (len(writers), len(collectors)) == (WRITERS, COLLECTORS)
    assert all(writer["promotions"] >= rounds for writer in writers)

    # Whatever a last race left in the trash comes back with the next collection.
    collector = Collector(
        registry,
        lambda _: TIGHT,
        actor=Actor(name="last", proved_by="test"),
        grace=timedelta(0),
    )
    last = collector.discard()
    assert_whole(registry)
    assert collector.discard().restored == 0
    assert verify(registry).mismatches == ()
    live = {
        str(ref): registry.channels.state(ref).live for ref in registry.channels.channels(PRODUCT)
    }
    assert {f"{PRODUCT}/writer-{number}" for number in range(WRITERS)} <= live.keys()
    for ref in registry.channels.channels(PRODUCT):
        registry.engines.check_engine(registry.channels.state(ref).live.engine)
        assert registry.channels.replay(ref) == registry.channels.state(ref)
    collector.purge()  # nobody is at work: all of the trash may go
    assert_whole(registry)
    totals = {
        key: round(sum(answer.get(key, 0) for answer in answers), 2)
        for key in (
            "engines",
            "promotions",
            "rescues",
            "lost_races",
            "waited",
            "runs",
            "discarded",
            "restored",
            "purged",
            "put_off",
        )
    }
    assert totals["discarded"] > 0
    longest_s = max(writer["longest_wait_s"] for writer in writers)
    return f"{totals}, longest wait {longest_s:.2f} s, {last.restored} put back last"
