"""A registry with any number of engines: real acts, real layout, no waiting for the disk.

No fsync and no temporary names: only a benchmark may write so.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from engine_registry import layout
from engine_registry.backends.filesystem import file_stores
from engine_registry.backends.filesystem.blobs import FileBlobs
from engine_registry.backends.filesystem.documents import FileDocuments, FilePointers
from engine_registry.backends.filesystem.root import StoreRoot
from engine_registry.digest import Digest
from engine_registry.refs import ProductRef
from engine_registry.registry import Registry, open_registry, utc_now
from engine_registry.store import Depth, StoredBlob, Stores
from engine_registry.testing import samples

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.store import Ownership

PRODUCTS = 50
CHECKED = 200


class _QuickBlobs(FileBlobs):
    def __init__(self, root: Path) -> None:
        super().__init__(StoreRoot(root, utc_now))
        self._dir = root

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:  # noqa: ARG002
        return self.add_bytes(path.read_bytes())

    def add_bytes(self, data: bytes) -> StoredBlob:
        digest = Digest.of(data)
        _write(self._dir / layout.blob(digest), data)
        return StoredBlob(digest=digest, size_bytes=len(data))


class _QuickDocuments(FileDocuments):
    def __init__(self, root: Path) -> None:
        super().__init__(StoreRoot(root, utc_now))
        self._dir = root

    def create(self, name: str, data: bytes) -> bool:
        return _write(self._dir / name, data)


class _QuickPointers(FilePointers):
    def __init__(self, root: Path) -> None:
        super().__init__(StoreRoot(root, utc_now))
        self._dir = root

    def swap(self, name: str, expected: str | None, data: bytes) -> str:  # noqa: ARG002
        (self._dir / name).unlink(missing_ok=True)
        _write(self._dir / name, data)
        return Digest.of(data).hex


def _write(path: Path, data: bytes) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _write(path, data)
    except FileExistsError:
        return False
    with os.fdopen(fd, "wb") as stream:
        stream.write(data)
    return True


def quick_registry(root: Path) -> Registry:
    """The registry at `root`, which exists, for one writer that does not wait for the disk."""
    quick = Stores(
        blobs=_QuickBlobs(root),
        documents=_QuickDocuments(root),
        pointers=_QuickPointers(root),
        inventory=file_stores(root, utc_now).inventory,
        trash=file_stores(root, utc_now).trash,
    )
    # As if recorded an hour ago: what was noted in the last minutes is read again by every listing.
    return Registry(quick, lambda: utc_now() - timedelta(hours=1), f"file://{root}")


def fill(root: Path, scratch: Path, held: int, count: int) -> None:
    """Record engines of 50 products, one process per core; then read a sample back.

    Args:
        root: of the registry, which exists.
        scratch: where each process keeps the files of the engine it is about to put in.
        held: how many there are.
        count: how many there are to be.
    """
    began = time.monotonic()
    cores = len(os.sched_getaffinity(0))
    children = []
    for part in range(cores):
        if (child := os.fork()) == 0:
            _fill_part(root, scratch / f"part-{part}", range(held + part, count, cores))
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        msg = "filling the registry failed"
        raise SystemExit(msg)
    wrote_s = time.monotonic() - began
    os.sync()
    _read_back(root, count)
    print(f"{count - held:,} engines recorded in {wrote_s:.0f} s, sample checked", flush=True)


def _fill_part(root: Path, folder: Path, numbers: range) -> NoReturn:
    """The life of a child process: it must not come back to the code that forked it."""
    code = 1
    try:
        registry = quick_registry(root)
        for number in numbers:
            name = f"engine-{number}"
            product = ProductRef("tiny", f"target-{number % PRODUCTS}")
            files = {"model.gguf": name.encode() * 8}
            registry.engines.put_engine(samples.sample_draft(folder, name, files, product=product))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _read_back(root: Path, count: int) -> None:
    """What was written quickly reads back through the registry as any other engine."""
    registry = open_registry(f"file://{root}")
    engines = list(registry.engines.all_engines())
    if len(engines) != count:
        msg = f"wrote {count:,} engines, the registry has {len(engines):,}"
        raise SystemExit(msg)
    for engine in random.Random(7).sample(engines, min(count, CHECKED)):
        stored = registry.engines.check_engine(engine, Depth.FULL)
        found = registry.engines.find_by_key(stored.records[0].build_key)
        if found is None or found.digest != engine:
            msg = f"engine {engine} is not found by its build key"
            raise SystemExit(msg)
