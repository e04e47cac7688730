"""One engine from build to production and back, over S3, behind a proxy that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from engine_registry.backends.s3 import stores_in
from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.blobs import S3Blobs
from engine_registry.backends.s3.bucket import Bucket, Patience
from engine_registry.backends.s3.objects import Objects
from engine_registry.backends.s3.root import S3Root
from engine_registry.engines import EngineDraft
from engine_registry.events import Change, Frozen, RolledBack
from engine_registry.registry import Registry
from engine_registry.store import Stores
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    live,
    sample_draft,
    sample_promotion,
    sample_release,
    sample_report,
)
from tests.servers.s3 import S3Server
from tests.servers.s3_faults import FaultyProxy, proxied

PART_BYTES = 5 << 20  # the least that real stores take
# A fault is over with the next try, or never: no pauses. Silence is noticed after `read_s`.
PATIENCE = Patience(attempts=3, pause_s=0, connect_s=5, read_s=1)


def fixed_clock() -> datetime:
    # A rerun writes what the first run would have: final states can be compared byte by byte.
    return SAMPLE_AT


@dataclass
class Scene:
    """A store, reached directly and through a proxy."""

    direct: S3Server
    proxy: FaultyProxy
    front: S3Server
    part_bytes: int
    drafts: dict[int, EngineDraft] = field(default_factory=dict)

    def stores(self, server: S3Server, prefix: str) -> Stores:
        """The ports at a prefix, with parts of the wanted size."""
        url = server.url(prefix)
        bucket = Bucket(S3Address.parse(url), server.patience, client=server.client)
        plain = stores_in(bucket, fixed_clock)
        return Stores(
            blobs=S3Blobs(S3Root(Objects(bucket), fixed_clock), self.part_bytes, 4 << 20),
            documents=plain.documents,
            pointers=plain.pointers,
            inventory=plain.inventory,
        )

    def registry(self, prefix: str, *, through_proxy: bool) -> Registry:
        server = self.front if through_proxy else self.direct
        return Registry(self.stores(server, prefix), fixed_clock)

    def draft(self, folder: Path) -> EngineDraft:
        """An engine with one file that goes up in parts."""
        files = {"config.json": b"{}", "rank0.engine": bytes(range(256)) * (self.part_bytes // 100)}
        return sample_draft(folder, "one", files)

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Every object of the registry, byte by byte."""
        objects = Objects(self.direct.bucket_at(self.direct.url(prefix)))
        found = {}
        for item in objects.below():
            held = objects.get(item.name)
            if held is not None:
                found[item.name] = held.data
        return stored(found)


def stored(objects: dict[str, bytes]) -> dict[str, bytes]:
    """What belongs to the registry among these objects."""
    return {n: data for n, data in objects.items() if not n.startswith(("cache/", "tmp/"))}


@contextmanager
def scene(
    endpoint: str, bucket: str, part_bytes: int = PART_BYTES, patience: Patience = PATIENCE
) -> Iterator[Scene]:
    """A store at `endpoint` with a proxy before it."""
    with proxied(endpoint) as (proxy, front):
        direct = S3Server(endpoint, bucket, patience)
        yield Scene(direct, proxy, S3Server(front, bucket, patience), part_bytes)


def story(registry: Registry, draft: EngineDraft, out: Path | None = None) -> None:
    """Build, report, release, promote, freeze, roll back; then take the engine out."""
    engine = registry.engines.put_engine(draft)
    report = sample_report(registry, engine.digest)
    release = sample_release(registry, engine, evidence=(report,))
    changes: list[Change] = [
        sample_promotion(release),
        Frozen(reason="incident"),
        RolledBack(to=live(release), reason="slower"),
    ]
    for number, change in enumerate(changes):
        registry.channels.append(
            SAMPLE_CHANNEL,
            decided_on=number,
            change=change,
            actor=SAMPLE_ACTOR,
            at=registry.clock(),
            operation=f"operation {number}",
        )
    if out is not None:
        registry.engines.materialise(engine.digest, out)
