"""A target's directory: versions beside each other, and one symbolic link that says which is live.

    current → versions/12-r7-4f2a9c1b0d3e   the pointer; it moves in one rename
    versions/12-r7-4f2a9c1b0d3e/            generation 12: release 7 with engine 4f2a9c1b0d3e
        deployment.json                     what it is, in an envelope with its own digest
        manifest.json                       the engine's manifest; its digest is the engine's
        proven                              it was served once; the others are nothing to go back to
        engine → ../../engines/4f2a9c1b0d3e
    engines/4f2a9c1b0d3e/                   the engine's files, laid out and hashed once
    fence.json                              the newest event that anybody began to deploy
    .lock                                   held by the one process that deploys

A version is filled under another name, made durable and renamed: it is whole or absent. Generations
only grow, so a rollback is a new version with an old engine. Names that begin with a dot are
somebody's unfinished work, swept by whoever holds the lock next.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.targets.durable import sync_dir, write_durably
from engine_pipeline.targets.port import Deployment, Fence, NothingRuns
from engine_registry.documents import seal, unseal
from engine_registry.errors import Conflict, IntegrityError, Unavailable
from engine_registry.manifest import read_manifest
from engine_registry.room import free_bytes, is_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_registry.manifest import Manifest

DEPLOYMENT, MANIFEST, ENGINE, PROVEN = "deployment.json", "manifest.json", "engine", "proven"
_CURRENT, _VERSIONS, _ENGINES, _FENCE, _LOCK = (
    "current",
    "versions",
    "engines",
    "fence.json",
    ".lock",
)
_NOTHING = "0-nothing"
_VERSION = re.compile(r"([1-9][0-9]{0,17})-r[1-9][0-9]*-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version on disk, its documents read and checked."""

    generation: int
    path: Path
    deployment: Deployment
    manifest: Manifest
    proven: bool

    @property
    def engine_dir(self) -> Path:
        """Where the engine's files are, past all links."""
        return (self.path / ENGINE).resolve()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A version being filled: where, which generation it will be, and under which name."""

    path: Path
    generation: int
    name: str


class Tree:
    """The tree below `root`, made when first written to.

    Args:
        root: absolute; on one file system.
        keep: how many earlier versions stay, with their engines, ready to be used again.
    """

    def __init__(self, root: Path, keep: int) -> None:
        self.root = root
        self.engines_dir = root / _ENGINES
        self._keep = keep

    @property
    def pointer(self) -> Path:
        """The link that says what is live."""
        return self.root / _CURRENT

    @contextmanager
    def held(self, who: str) -> Iterator[None]:
        """See `Target.held`; sweeps what a process that died left half done."""
        with self.on_disk("make it"):
            for folder in (_VERSIONS, _ENGINES):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(descriptor, who)
            with self.on_disk("clean up"):
                self._sweep()
            yield
        finally:
            os.close(descriptor)

    def current(self) -> Version | NothingRuns:
        """The version that the pointer names."""
        try:
            name = self.pointer.readlink().name
        except FileNotFoundError:
            return NothingRuns(reason=f"{self.root}: nothing was deployed yet")
        except OSError as error:
            return NothingRuns(
                reason=f"{self.pointer}: not the link it should be: {error.strerror}"
            )
        return self._version(name)

    def version(self, generation: int) -> Version | NothingRuns:
        """The version of that generation."""
        for name in self._names():
            if _generation(name) == generation:
                return self._version(name)
        return NothingRuns(reason=f"{self.root}: has no generation {generation}")

    def fence(self) -> Fence | None:
        """What `raise_fence` was last called with.

        Raises:
            IntegrityError: the file is damaged.
        """
        try:
            data = (self.root / _FENCE).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read fence.json", error) from error
        return unseal(data, Fence, str(self.root / _FENCE))[0]

    def raise_fence(self, fence: Fence) -> None:
        """Store the fence durably, in one step."""
        with self.on_disk("write fence.json"):
            part = self.root / f".fence-{secrets.token_hex(4)}"
            write_durably(part, seal(fence))
            part.replace(self.root / _FENCE)
            sync_dir(self.root)

    @contextmanager
    def staged(
        self, deployment: Deployment, manifest: Manifest, engine_dir: Path
    ) -> Iterator[Stage]:
        """A directory to fill; when the block ends well it is a version, whole and durable."""
        generation = 1 + max((_generation(name) for name in self._names()), default=0)
        name = f"{generation}-r{deployment.release.number}-{deployment.engine.short}"
        path = self.root / _VERSIONS / f".stage-{generation}-{secrets.token_hex(4)}"
        try:
            with self.on_disk("write a version"):
                path.mkdir()
                (path / ENGINE).symlink_to(Path("..", "..", _ENGINES, engine_dir.name))
                write_durably(path / MANIFEST, manifest.to_bytes())
                yield Stage(path=path, generation=generation, name=name)
                write_durably(path / DEPLOYMENT, seal(deployment))
                for folder, _, _ in os.walk(path, topdown=False):
                    sync_dir(Path(folder))
                path.rename(path.with_name(name))
                sync_dir(path.parent)
        finally:
            self._delete(path)

    def point_at(self, name: str) -> None:
        """Move the pointer to `versions/<name>`, in one step and durably."""
        with self.on_disk("move its pointer"):
            link = self.root / f".current-{secrets.token_hex(4)}"
            link.symlink_to(Path(_VERSIONS, name))
            link.replace(self.pointer)
            sync_dir(self.root)

    def point_at_nothing(self, folders: tuple[str, ...]) -> None:
        """Move the pointer to a version that is none: empty, with these folders in it."""
        with self.on_disk("make an empty version"):
            for folder in folders:
                (self.root / _VERSIONS / _NOTHING / folder).mkdir(parents=True, exist_ok=True)
        self.point_at(_NOTHING)

    def prove(self, name: str) -> None:
        """Mark a version as one that can be served."""
        with self.on_disk("mark a version"):
            (self.root / _VERSIONS / name / PROVEN).touch()

    def prune(self) -> None:
        """Remove what need not stay.

        Kept are what is live and the newest proven versions before it, with their engines.
        """
        with self.on_disk("remove old versions"):
            versions = self.root / _VERSIONS
            live = self.pointer.readlink().name
            earlier = [name for name in self._names() if name != live]
            proven = [name for name in earlier if (versions / name / PROVEN).exists()]
            for gone in set(earlier) - set(proven[: self._keep]):
                self._remove(versions / gone)
            used = {link.readlink().name for link in versions.glob(f"*/{ENGINE}")}
            for place in list(self.engines_dir.iterdir()):
                if place.name not in used:
                    self._remove(place)

    def _names(self) -> list[str]:
        """Names of all versions, newest first."""
        try:
            names = [path.name for path in (self.root / _VERSIONS).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("list its versions", error) from error
        return sorted(filter(_VERSION.fullmatch, names), key=_generation, reverse=True)

    def _version(self, name: str) -> Version | NothingRuns:
        path = self.root / _VERSIONS / name
        if not _VERSION.fullmatch(name):
            return NothingRuns(reason=f"{self.root}: nothing was deployed yet")
        try:
            deployment, _ = unseal((path / DEPLOYMENT).read_bytes(), Deployment, str(path))
            manifest = read_manifest((path / MANIFEST).read_bytes(), deployment.engine)
        except (OSError, IntegrityError) as error:
            return NothingRuns(reason=f"{path}: no version that can be read: {error}")
        return Version(
            generation=_generation(name),
            path=path,
            deployment=deployment,
            manifest=manifest,
            proven=(path / PROVEN).exists(),
        )

    def _lock(self, descriptor: int, who: str) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 400, 0).decode(errors="replace").strip() or "somebody"
            raise Conflict(
                f"{self.root} is being deployed to by {holder}; nothing was changed",
                hint="wait for it to end, then run the same command again",
                reference="target-held",
            ) from error
        except OSError as error:
            raise self._unusable("lock it", error) from error
        with suppress(OSError):  # no room for the name of who holds it: it is held all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, who.encode()[:400], 0)

    def _sweep(self) -> None:
        for folder in (self.root, self.root / _VERSIONS, self.engines_dir):
            for path in folder.glob(".*-*"):
                self._delete(path)

    def _remove(self, path: Path) -> None:
        """Let a directory disappear at once, then delete it."""
        aside = path.with_name(f".gone-{path.name}-{secrets.token_hex(4)}")
        path.rename(aside)
        self._delete(aside)

    @staticmethod
    def _delete(path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def on_disk(self, act: str) -> Iterator[None]:
        """Turn the operating system's refusals into an error that names the target and the act."""
        try:
            yield
        except OSError as error:
            raise self._unusable(act, error) from error

    def _unusable(self, act: str, error: OSError) -> Unavailable:
        room, reference = "", "target-not-usable"
        if is_full(error):
            reference = "disk-full"
            with suppress(OSError):
                room = f" ({free_bytes(self.root):,} bytes are free)"
        return Unavailable(
            f"{self.root}: cannot {act}: {error.strerror or error}{room}",
            hint="see that it is writable and has room, then run the same command again",
            reference=reference,
        )


def _generation(name: str) -> int:
    return int(name.partition("-")[0])
