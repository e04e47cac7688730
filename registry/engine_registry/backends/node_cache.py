"""A node's own copies of engines from a registry that is far away, within a limit.

    store/                blobs by digest, kept and checked as those of a registry in a directory
    engines/<hex>.json    an engine and its files; its time is when it was last used
    engines/<hex>.lock    locked, shared, by every process that fetches or lays that engine out
    engines/<hex>.fetch   locked by the one that fetches; the others wait for it
    claims/<hex>.json     what a place of this node is deployed from
    .lock                 locked by whoever enters an engine or evicts one

Derived from the registry: it may be deleted whenever nobody uses it. A blob has its name only once
it is whole, so killing a process costs at most the file that it was fetching. An engine is evicted
under `.lock` and only if nobody has its own lock: what a process was promised stays.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.filesystem.blobs import FileBlobs
from engine_registry.backends.filesystem.durable import sync_dir, write_all
from engine_registry.backends.filesystem.root import CACHE, StoreRoot
from engine_registry.backends.filesystem.stamps import Stamps
from engine_registry.cache_plan import CachedBlob, CachedEngine, Claim, Held, decide
from engine_registry.digest import Digest
from engine_registry.documents import seal, unseal
from engine_registry.errors import IntegrityError, NotFound, Unavailable
from engine_registry.store import Depth, Ownership
from engine_registry.transfer_staging import staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_registry.cache_plan import Decision
    from engine_registry.documents import Document
    from engine_registry.drafts import StoredEngine
    from engine_registry.store import BlobStore, Stores

_LOG = logging.getLogger(__name__)

_ENTRIES, _CLAIMS, _LOCK = "engines", "claims", ".lock"
# Refusals of this node's disk: the engine is laid out without the cache then.
_OF_THIS_DISK = frozenset(
    {
        "cache-not-usable",
        "directory-not-writable",
        "disk-full",
        "store-full",
        "store-io",
        "store-not-readable",
        "store-not-writable",
    }
)


class NodeCache:
    """The cache below one directory, shared by any number of processes.

    Args:
        root: made when first needed.
        limit_bytes: how much may lie there; only what is claimed goes beyond.
        clock: gives the aware UTC time.
    """

    def __init__(self, root: Path, limit_bytes: int, clock: Callable[[], datetime]) -> None:
        self.root = root.absolute()
        self.limit_bytes = limit_bytes
        self._clock = clock
        self._store = StoreRoot(self.root / "store", clock)
        self._blobs = FileBlobs(self._store)
        self._stamps = Stamps(self._store.path / CACHE)

    @contextmanager
    def holding(self, engine: StoredEngine, stores: Stores) -> Iterator[BlobStore]:
        """Where to lay the engine out from: here, every byte checked, or else the registry itself.

        What is missing is fetched first. An engine for which there is no room beside what has to
        stay, and a disk that refuses, cost nothing but the saving.

        Raises:
            NotFound, IntegrityError, Unavailable: the registry could not give it.
        """
        with ExitStack() as stack:
            try:
                near = self._obtain(engine, stores, stack)
            except Unavailable as error:
                if error.name not in _OF_THIS_DISK:
                    raise
                _LOG.warning("engine %s is not cached: %s", engine.digest.short, error.message)
                near = False
            yield self._blobs if near else stores.blobs

    def fill(self, engine: StoredEngine, stores: Stores) -> bool:
        """Fetch an engine ahead of its use; False if there is no room for it.

        Raises:
            Unavailable: as `holding`, and also if this disk refuses.
        """
        with ExitStack() as stack:
            return self._obtain(engine, stores, stack)

    def claim(self, claim: Claim) -> None:
        """Keep what this place serves from, instead of what it claimed before."""
        with self._alone():
            name = Digest.of(claim.place.encode()).hex
            self._write(self.root / _CLAIMS / f"{name}.json", claim)

    def survey(self, limit_bytes: int | None = None) -> Decision:
        """What would stay and what would go; changes nothing."""
        limit = self.limit_bytes if limit_bytes is None else limit_bytes
        with self._on_disk():
            return decide(self._held(), self._claims(), limit_bytes=limit, now=self._clock())

    def trim(self, limit_bytes: int | None = None) -> Decision:
        """Evict down to a limit; what stayed, and what went."""
        with self._alone():
            decision = self.survey(limit_bytes)
            self._evict(decision)
            return decision

    def _obtain(self, engine: StoredEngine, stores: Stores, stack: ExitStack) -> bool:
        """Have the whole engine here and nobody evict it while `stack` is open."""
        parts = {part.digest: part.size for part in engine.manifest.layers}
        entry = CachedEngine(
            engine=engine.digest,
            model=engine.records[0].model,
            target=engine.records[0].target,
            blobs=tuple(CachedBlob(digest=key, size_bytes=size) for key, size in parts.items()),
        )
        if not self._enter(entry, stack):
            return False
        with self._on_disk(), self._locked(self._file(engine.digest, "fetch"), fcntl.LOCK_EX):
            for blob in entry.blobs:
                self._fetch(blob, stores)
        return True

    def _enter(self, entry: CachedEngine, stack: ExitStack) -> bool:
        """Note that the engine is used now and make room for it; False if there is none."""
        path = self._file(entry.engine, "json")
        with self._alone(), ExitStack() as use:
            use.enter_context(self._locked(self._file(entry.engine, "lock"), fcntl.LOCK_SH))
            is_new = self._entry(path) is None
            if is_new:
                self._write(path, entry)
            at_ns = int(self._clock().timestamp() * 1e9)
            os.utime(path, ns=(at_ns, at_ns))
            decision = self.survey()
            mine = next(one for one in decision.kept if one.held.entry.engine == entry.engine)
            if is_new and decision.over_bytes and not mine.is_claimed:
                self._forget(entry.engine)
                return False
            self._evict(decision)
            stack.enter_context(use.pop_all())
            return True

    def _fetch(self, blob: CachedBlob, stores: Stores) -> None:
        try:
            return self._blobs.check(blob.digest, blob.size_bytes, Depth.UNCHANGED)
        except NotFound:
            pass
        except IntegrityError as error:
            _LOG.warning("cache: fetched again: %s", error.message)
        with staged(self._store.tmp_dir) as path:
            stores.blobs.materialise(blob.digest, path)
            if stores.hashes_on_the_way:
                self._blobs.adopt(path, blob.digest, blob.size_bytes)
                return None
            found = self._blobs.add_file(path, Ownership.GIVEN)
        if found.digest != blob.digest:
            (self._store.path / layout.blob(found.digest)).unlink(missing_ok=True)
            raise IntegrityError(
                f"blob {blob.digest}: arrived with digest {found.digest}",
                hint="run `enginectl verify` on the registry to list every damaged file",
                reference="blob-damaged",
            )
        return None

    def _evict(self, decision: Decision) -> None:
        """Remove every blob that belongs to nothing that stays; the caller is alone."""
        kept = decision.kept_blobs
        for path in (self._store.path / layout.BLOBS).glob("*"):
            digest = layout.digest_of(path.name)
            if digest is not None and digest not in kept:
                path.unlink(missing_ok=True)
                self._stamps.forget(digest)
        for one in decision.evicted:
            self._forget(one.held.entry.engine)

    def _forget(self, engine: Digest) -> None:
        """Strike the engine off, after its bytes; the caller is alone."""
        for kind in ("json", "fetch", "lock"):
            self._file(engine, kind).unlink(missing_ok=True)

    def _held(self) -> list[Held]:
        found = []
        for path in (self.root / _ENTRIES).glob("*.json"):
            entry = self._entry(path)
            if entry is not None:
                used_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                found.append(
                    Held(
                        entry=entry,
                        used_at=used_at,
                        is_in_use=_is_locked(path.with_suffix(".lock")),
                        missing_bytes=self._missing_bytes(entry),
                    )
                )
        return found

    def _missing_bytes(self, entry: CachedEngine) -> int:
        blobs = self._store.path / layout.BLOBS
        return sum(b.size_bytes for b in entry.blobs if not (blobs / b.digest.hex).exists())

    def _claims(self) -> list[Claim]:
        """The claims of places that are still there."""
        found = []
        for path in sorted((self.root / _CLAIMS).glob("*.json")):
            with suppress(IntegrityError, FileNotFoundError):
                claim, _ = unseal(path.read_bytes(), Claim, str(path))
                if Path(claim.place).is_dir():
                    found.append(claim)
        return found

    @staticmethod
    def _entry(path: Path) -> CachedEngine | None:
        """The entry in a file; None if it is not there, or damaged, as after a loss of power."""
        try:
            return unseal(path.read_bytes(), CachedEngine, str(path))[0]
        except (IntegrityError, FileNotFoundError):
            return None

    def _file(self, engine: Digest, kind: str) -> Path:
        return self.root / _ENTRIES / f"{engine.hex}.{kind}"

    def _write(self, path: Path, document: Document) -> None:
        part = path.with_name(f".{secrets.token_hex(8)}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, seal(document))
            os.fsync(descriptor)
            part.replace(path)
        finally:
            os.close(descriptor)
            part.unlink(missing_ok=True)
        sync_dir(path.parent)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else enters or evicts an engine until the block ends."""
        with self._on_disk():
            for folder in (_ENTRIES, _CLAIMS):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            with self._locked(self.root / _LOCK, fcntl.LOCK_EX):
                yield

    @staticmethod
    @contextmanager
    def _locked(path: Path, how: int) -> Iterator[None]:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"cannot use the cache {self.root}: {error.strerror or error}",
                hint="see that it is writable and has room, or set ENGINECTL_CACHE to another disk",
                reference="cache-not-usable",
            ) from error


def _is_locked(path: Path) -> bool:
    """Whether some process has this lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
