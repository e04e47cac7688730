"""Eight writers and two collectors on one registry at once, without any grace for what is young.

    python collecting.py ROOT WRITERS COLLECTORS ROUNDS

Prints one line of JSON per process. Writers share files with engines that are garbage, so that they
keep coming to rest on what a collector is about to discard. Only the trash is not purged at once.
"""

import json
import os
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

from engine_registry.errors import ChannelMoved, NotFound, Unavailable
from engine_registry.gc import Collector
from engine_registry.record import Actor
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import Registry, open_registry
from engine_registry.retention import Retention
from engine_registry.testing.samples import (
    sample_draft,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)

PRODUCT = ProductRef("tiny", "cpu")
SHARED_CHANNEL = ChannelRef(PRODUCT, "shared")
TIGHT = Retention(
    live_per_channel=1,
    newest_releases=1,
    released_for=timedelta(0),
    unreleased_for=timedelta(0),
)
# A writer's act takes milliseconds; nothing is purged that one could have been at work on.
IN_TRASH = timedelta(seconds=20)
HEALED_WITHIN_S = 60.0


def write(registry: Registry, number: int, rounds: int) -> dict[str, object]:
    """Build, judge, release and promote; after each promotion, read everything back."""
    own = ChannelRef(PRODUCT, f"writer-{number}")
    counts = {
        "engines": 0,
        "promotions": 0,
        "rescues": 0,
        "lost_races": 0,
        "waited": 0,
        "longest_wait_s": 0.0,
    }
    before = None
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            files = {
                "m.gguf": f"writer {number} turn {turn} ".encode() * 20,
                "shared.json": b"shared by all of turn %d" % (turn % 3),
                "config.json": b"shared by the writers' turns %d" % (turn % 2),
            }
            name = f"writer {number} turn {turn}"
            draft = sample_draft(Path(folder) / str(turn), name, files, product=PRODUCT)
            release = until_named(registry, draft, counts)
            sample_event(registry, sample_promotion(release), ref=own)
            registry.releases.keep_whole(release)
            counts["promotions"] += 1
            wait_until_whole(registry, own, counts)
            if turn % 2:
                move_shared(registry, release, counts)
            elif before is not None:
                # Back to what is no longer kept by anything: it may be in the trash by now.
                sample_event(registry, sample_promotion(before), ref=own)
                registry.releases.keep_whole(before)
                counts["rescues"] += 1
                wait_until_whole(registry, own, counts)
            before = release
    return {"writer": number, **counts}


def until_named(registry: Registry, draft, counts):
    """An engine that is discarded before anybody names it is built again, as a pipeline would."""
    while True:
        try:
            engine = registry.engines.put_engine(draft)
            counts["engines"] += 1
            report = sample_report(registry, engine.digest)
            return sample_release(registry, engine, product=PRODUCT, evidence=(report,))
        except NotFound:
            counts["lost_races"] += 1
        except Unavailable as error:
            if error.name != "engine-collected":
                raise
            counts["lost_races"] += 1


def move_shared(registry: Registry, release, counts) -> None:
    try:
        sample_event(
            registry, sample_promotion(release), ref=SHARED_CHANNEL, operation=release.name
        )
        registry.releases.keep_whole(release)
        counts["promotions"] += 1
    except ChannelMoved:
        counts["lost_races"] += 1


def wait_until_whole(registry: Registry, ref: ChannelRef, counts) -> None:
    """What is live is whole; a collector that was in the middle puts it back within moments."""
    began = time.monotonic()
    while True:
        live = registry.channels.state(ref).live
        try:
            registry.engines.check_engine(live.engine)
            registry.releases.release(_release_ref(live.number))
        except NotFound:
            waited_s = time.monotonic() - began
            if waited_s > HEALED_WITHIN_S:
                raise
            if waited_s == 0:
                counts["waited"] += 1
            time.sleep(0.01)
            continue
        counts["longest_wait_s"] = max(counts["longest_wait_s"], time.monotonic() - began)
        return


def _release_ref(number: int):
    from engine_registry.refs import ReleaseRef

    return ReleaseRef(PRODUCT, number)


def collect(registry: Registry, number: int, stop: Path) -> dict[str, object]:
    """Discard and purge until told to stop."""
    counts = {"runs": 0, "discarded": 0, "restored": 0, "purged": 0, "put_off": 0}
    collector = Collector(
        registry,
        lambda _: TIGHT,
        actor=Actor(name=f"collector-{number}", proved_by="test"),
        grace=timedelta(0),
        in_trash=IN_TRASH,
    )
    while not stop.exists():
        for done in (collector.discard(), collector.purge()):
            counts["runs"] += 1
            counts["discarded"] += done.discarded_files
            counts["restored"] += done.restored
            counts["purged"] += done.purged_files
            counts["put_off"] += len(done.put_off)
    return {"collector": number, **counts}


def run(root: str, role: str, number: int, rounds: int, stop: Path) -> int:
    """One process: its exit status."""
    try:
        registry = open_registry(root)
        if role == "writer":
            answer = write(registry, number, rounds)
        else:
            answer = collect(registry, number, stop)
        os.write(1, (json.dumps(answer) + "\n").encode())
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(root: str, writers: int, collectors: int, rounds: int) -> int:
    """Run them all; 0 if all of them ended well."""
    stop = Path(root).parent / "stop"
    roles = [("writer", n) for n in range(writers)] + [("collector", n) for n in range(collectors)]
    children = {}
    for role, number in roles:
        child = os.fork()
        if child == 0:
            os._exit(run(root, role, number, rounds, stop))
        children[child] = role
    failed = 0
    working = writers
    while children:
        child, status = os.wait()
        failed |= status != 0
        working -= children.pop(child) == "writer"
        if working == 0:
            stop.touch()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:5])))
