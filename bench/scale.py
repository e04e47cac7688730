"""With 100,000 engines recorded, listings answer in under 0.1 s; a collection plans in minutes.

Inside a process: building the index, bringing it up to date, asking it; reading a channel; planning
a collection. Whole processes: `enginectl list`, `status` and `history`. Verification is measured on
a few large files. The peers do the least that could give the same answer: `find` that lists names,
sizes and times; reading every record as JSON; hashing the same bytes with `hashlib`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import measure
import project
from engine_pipeline.gates.report import CREATED, GATE, OUTCOME
from engine_registry import layout
from engine_registry.digest import READ_SIZE_BYTES
from engine_registry.gc import Collector
from engine_registry.index import GateNames, Index
from engine_registry.index_query import EngineQuery
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.record import Actor
from engine_registry.registry import open_registry
from engine_registry.retention import Retention
from engine_registry.store import Ownership
from engine_registry.verify import verify
from fill import fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_registry.registry import Registry

FIND, READ, HASHLIB = "find -printf", "every record, json.loads", "hashlib"
NAMES = GateNames(artifact_type=REPORT_ARTIFACT, gate=GATE, outcome=OUTCOME, created=CREATED)


def main() -> None:
    options = measure.arguments(
        __doc__,
        engines=(100_000, "how many are recorded"),
        gigabytes=(4.0, "how much is verified"),
        repeats=(10, "runs of what takes less than a second"),
    )
    engines, size_gb, repeats = (
        (100, 0.05, 3) if options.quick else (options.engines, options.gigabytes, options.repeats)
    )
    with measure.bench(__doc__, options.dir) as scratch:
        root = scratch / "registry"
        here = project.prepare(scratch, root)
        fill(root, scratch / "fill", project.ENGINES, engines)
        registry = open_registry(here.url)
        index = Index(registry, scratch / "index.sqlite", NAMES)
        _whole_registry(registry, index, root, engines)
        _questions(registry, index, here, repeats)
        _processes(here, scratch, repeats)
        measure.remove(root)
        _verify(scratch, size_gb, 1 if options.quick else 5)


def _whole_registry(registry: Registry, index: Index, root: Path, engines: int) -> None:
    """What has to look at everything, twice."""
    collector = Collector(
        registry,
        lambda _: Retention(),
        actor=Actor(name="bench", proved_by="claimed"),
        grace=timedelta(0),
    )
    find = ("find", str(root), "-type", "f", "-printf", "%p %s %C@\n")
    cases = [
        measure.Case(name=FIND, run=partial(measure.command, *find)),
        measure.Case(name="gc, plan", run=collector.plan),
        measure.Case(name=READ, run=partial(_read_records, root)),
        measure.Case(name="index, first build", run=lambda: index.refresh(rebuild=True)),
    ]
    table = measure.Table(title=f"{engines:,} engines recorded", peers={FIND: FIND, READ: READ})
    table.add(measure.interleaved(cases, repeats=2))
    table.print()


def _questions(registry: Registry, index: Index, here: project.Project, repeats: int) -> None:
    """What answers a person, in a process that is up already."""
    channel = here.channel
    asked: dict[str, Callable[[], object]] = {
        "index, nothing new": index.refresh,
        "list, newest 50": lambda: index.find(EngineQuery()),
        "list, one product": lambda: index.find(EngineQuery(product="tiny/target-7")),
        "list, passed, released": lambda: index.find(
            EngineQuery(outcome="passed", is_released=True)
        ),
        "list, start of a digest": lambda: index.find(EngineQuery(text="abcdef")),
        "status of a channel": lambda: registry.channels.state(channel),
        "history, 300 events": lambda: registry.channels.events(channel),
    }
    cases = [measure.Case(name=name, run=run) for name, run in asked.items()]
    table = measure.Table(title="inside a process", peers={}, unit="ms", scale=1000, digits=1)
    table.add(measure.interleaved(cases, repeats, warm_up=1))
    table.print()


def _processes(here: project.Project, scratch: Path, repeats: int) -> None:
    env = here.env | {"ENGINECTL_CACHE": str(scratch / "cache")}
    enginectl = measure.enginectl()

    def case(*argv: str) -> measure.Case:
        run = partial(measure.command, enginectl, *argv, cwd=here.folder, env=env)
        return measure.Case(name=f"enginectl {argv[0]}", run=run)

    cases = [
        measure.Case(name="python -c pass", run=partial(measure.command, sys.executable, "-c", "")),
        case("list"),
        case("status"),
        case("history", str(here.channel)),
    ]
    table = measure.Table(
        title="whole processes; the first `list`, which builds the index, is not counted",
        peers={"python -c pass": "python -c pass"},
        unit="ms",
        scale=1000,
        digits=0,
    )
    table.add(measure.interleaved(cases, repeats, warm_up=1))
    table.print()


def _verify(scratch: Path, size_gb: float, repeats: int) -> None:
    registry = open_registry(f"file://{scratch / 'large'}")
    paths = []
    for number in range(4):
        path = scratch / f"file-{number}"
        with path.open("wb") as stream:
            left = int(size_gb * 1e9) // 4
            while left > 0:
                left -= stream.write(os.urandom(min(left, 1 << 26)))
        stored = registry.stores.blobs.add_file(path, Ownership.GIVEN)
        paths.append(scratch / "large" / layout.blob(stored.digest))
    cases = [
        measure.Case(name=HASHLIB, run=partial(_hash_all, paths)),
        measure.Case(name="verify", run=partial(verify, registry)),
    ]
    table = measure.Table(
        title=f"{size_gb:g} GB in 4 files, all cores", peers={HASHLIB: HASHLIB}, amount_gb=size_gb
    )
    table.add(measure.interleaved(cases, repeats, warm_up=1))
    table.print()


def _read_records(root: Path) -> None:
    for folder, _, names in os.walk(root / layout.RECORDS):
        for name in names:
            with open(f"{folder}/{name}", "rb") as stream:  # noqa: PTH123 the fastest way
                json.loads(stream.read())


def _hash_all(paths: list[Path]) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_hash, paths))


def _hash(path: Path) -> str:
    state = hashlib.sha256()
    buffer = memoryview(bytearray(READ_SIZE_BYTES))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()


if __name__ == "__main__":
    main()
