"""A registry whose clock and whose files' ages a test moves at will, over every kind of store."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine_registry.backends.filesystem import file_stores
from engine_registry.backends.filesystem.root import StoreRoot
from engine_registry.backends.filesystem.trash import FileTrash
from engine_registry.backends.memory import Ages, Files, memory_stores
from engine_registry.gc import Collector
from engine_registry.record import Actor
from engine_registry.refs import ProductRef
from engine_registry.registry import Registry
from engine_registry.retention import Retention
from engine_registry.store import Stores
from engine_registry.testing.samples import SAMPLE_PRODUCT
from engine_registry.verify import verify
from tests.faults.whole import assert_engines_whole

COLLECTOR = Actor(name="collector", proved_by="test")
DAY = timedelta(days=1)
# Keeps as little as the rules can: what is live, the newest release, and nothing by age.
TIGHT = Retention(
    live_per_channel=1,
    newest_releases=1,
    released_for=timedelta(0),
    unreleased_for=timedelta(0),
)


class World:
    """One registry of one kind; `open` gives its stores as a new process would see them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.root = folder / "registry"
        self.shift = timedelta(0)
        self._copy = folder / "saved"
        self._saved: Files = {}
        self._files: Files = {}
        self._passed: list[tuple[float, float]] = []
        self._ages = Ages(lambda: time.time() + self.shift.total_seconds())

    def clock(self) -> datetime:
        return datetime.now(UTC) + self.shift

    def pass_time(self, span: timedelta) -> None:
        """Everything written so far grows older by `span`, and so does the clock."""
        if self.kind == "filesystem":
            self._passed.append((self._next_tick(), span.total_seconds()))
        self.shift += span

    def _age_s(self, stat: os.stat_result) -> float:
        passed = sum(span for at, span in self._passed if stat.st_ctime < at)
        return time.time() - stat.st_ctime + passed

    def _next_tick(self) -> float:
        """The time of a file that is certainly later than every file so far."""
        probe = self.root.parent / "tick"
        probe.touch()
        first = probe.stat().st_ctime
        while probe.stat().st_ctime == first:  # file times advance every few milliseconds
            probe.unlink()
            probe.touch()
        return probe.stat().st_ctime

    def open(self) -> Stores:
        if self.kind == "memory":
            return memory_stores(self.clock, self._files, self._ages)
        root = StoreRoot(self.root, self.clock)
        root.prepare()
        trash = FileTrash(root, self._age_s)
        return replace(file_stores(self.root, self.clock), trash=trash)

    def registry(self, stores: Stores | None = None) -> Registry:
        return Registry(stores or self.open(), self.clock)

    def collector(
        self,
        registry: Registry | None = None,
        *,
        rules: Retention | None = TIGHT,
        grace: timedelta = DAY,
        only: ProductRef | None = None,
    ) -> Collector:
        def rules_of(product: ProductRef) -> Retention | None:
            return rules if only is None or product == only else None

        return Collector(registry or self.registry(), rules_of, actor=COLLECTOR, grace=grace)

    def clear(self) -> None:
        self._files.clear()
        shutil.rmtree(self.root, ignore_errors=True)
        self.shift = timedelta(0)
        self._passed.clear()

    def save(self) -> None:
        """Remember the registry as it is."""
        if self.kind == "memory":
            self._saved = dict(self._files)
        else:
            shutil.rmtree(self._copy, ignore_errors=True)
            shutil.copytree(self.root, self._copy)

    def load(self) -> None:
        """The registry as it was saved, everything in it two days old."""
        self.clear()
        if self.kind == "memory":
            self._files.update(self._saved)
            for name in self._files:
                self._ages.start(name)
        else:
            shutil.copytree(self._copy, self.root)
        self.pass_time(2 * DAY)

    def names(self, *, trash: bool = False) -> set[str]:
        found = {file.name for file in self.open().trash.aged()}
        return {name for name in found if name.startswith("trash/") == trash}


def engines_of(registry: Registry) -> set[str]:
    return {engine.hex for engine in registry.engines.all_engines()}


def numbers_of(registry: Registry, product: ProductRef = SAMPLE_PRODUCT) -> list[int]:
    return [release.number for release in registry.releases.releases(product)]


def assert_whole(registry: Registry) -> None:
    """Whatever a reader can see is whole: invariants 1 and 8."""
    assert verify(registry).mismatches == ()
    assert_engines_whole(registry)
    for ref in registry.channels.channels():
        live = registry.channels.state(ref).live
        if live is not None:
            registry.engines.check_engine(live.engine)
