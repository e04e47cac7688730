"""Outputs of finished steps, kept under the step's key so that none has to run twice.

    steps/<key>/output/…  steps/<key>/step.json    a finished step; the directory appears whole
    staging/<key>.<random>/                        a step that is running, or was when it died
    locks/<key>.lock                               held by the one process that builds this key
    logs/<key>.txt                                 what the last run of the step said

A directory is written, made durable and then renamed into `steps/`: that rename is the commit, so
killing the process anywhere leaves a whole entry or none. What is in `staging/` belongs to whoever
holds its key's lock; the kernel gives a dead process's lock up, and the next build sweeps.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_pipeline.build.machine import free_disk_bytes
from engine_pipeline.build.outputs import OutputFile, check_outputs, settle_outputs
from engine_registry.digest import Digest
from engine_registry.documents import Document, seal, unseal
from engine_registry.errors import IntegrityError, Unavailable
from engine_registry.refs import Slug
from engine_registry.room import is_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine_pipeline.build.plan import Step
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import StepResult

_RECORD = "step.json"
_OUTPUT = "output"


class StepRecord(Document):
    """`step.json`: what a finished step left and what it took."""

    key: Digest
    name: Slug
    files: tuple[OutputFile, ...]
    wall_s: Annotated[float, Field(ge=0)]
    peak_rss_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where a running step may write."""

    directory: Path
    output: Path
    scratch: Path
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStep:
    """A finished step in the cache; `reused` if this build did not run it."""

    record: StepRecord
    output: Path
    reused: bool


class StepCache:
    """The step cache below one directory, shared by any number of processes.

    Args:
        root: made when first needed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def find(self, key: Digest) -> KeptStep | None:
        """The finished step of this key, if every file of it is as it was left."""
        try:
            return self._read(key)
        except (IntegrityError, OSError):
            return None

    def obtain(
        self, step: Step, make: Callable[[Staging], StepResult], progress: Progress
    ) -> KeptStep:
        """The finished step, made by `make` if it is not there.

        Of any number of processes that want one key, one makes it and the others wait.

        Args:
            step: what is wanted.
            make: runs it in the given staging directory.
            progress: told who is waited for, and what was found damaged.

        Raises:
            Unavailable: `disk-full` or `cache-not-usable`.
            EngineCIError: whatever `make` raises; nothing of its work stays.
        """
        found = self.find(step.key)
        if found is not None:
            return found
        with self._disk(step), self._lock(step, progress):
            self._sweep(step.key)
            try:
                found = self._read(step.key)
            except IntegrityError as error:
                progress.note(f"{step.name}: kept output is damaged, made anew: {error.message}")
                self._discard(step.key)
            if found is not None:
                return found
            with self._staging(step.key) as staging:
                result = make(staging)
                return self._commit(step, staging, result)

    def _entry(self, key: Digest) -> Path:
        return self.root / "steps" / key.hex

    def _read(self, key: Digest) -> KeptStep | None:
        entry = self._entry(key)
        try:
            data = (entry / _RECORD).read_bytes()
        except FileNotFoundError as error:
            if not entry.exists():
                return None
            raise _damaged(f"{entry} has no {_RECORD}") from error
        record, _ = unseal(data, StepRecord, f"{entry / _RECORD}")
        if record.key != key:
            raise _damaged(f"{entry / _RECORD} is that of {record.key}")
        for file in record.files:
            path = entry / _OUTPUT / file.path
            try:
                stat = path.lstat()
            except OSError as error:
                raise _damaged(f"{path}: {error.strerror}") from error
            # A registry that shares the file may set its time back, a write sets it forward.
            if stat.st_size != file.size_bytes or stat.st_mtime_ns > file.mtime_ns:
                raise _damaged(
                    f"{path}: {stat.st_size} bytes, written at {stat.st_mtime_ns} ns; want "
                    f"{file.size_bytes}, written at {file.mtime_ns}"
                )
        return KeptStep(record=record, output=entry / _OUTPUT, reused=True)

    def _commit(self, step: Step, staging: Staging, result: StepResult) -> KeptStep:
        check_outputs(step, staging.output)
        shutil.rmtree(staging.scratch)
        record = StepRecord(
            key=step.key,
            name=step.name,
            files=settle_outputs(step, staging.output),
            wall_s=result.wall_s,
            peak_rss_bytes=result.peak_rss_bytes,
        )
        with (staging.directory / _RECORD).open("xb") as stream:
            stream.write(seal(record))
            stream.flush()
            os.fsync(stream.fileno())
        _sync_directory(staging.directory)
        entry = self._entry(step.key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        staging.directory.rename(entry)
        _sync_directory(entry.parent)
        return KeptStep(record=record, output=entry / _OUTPUT, reused=False)

    @contextmanager
    def _staging(self, key: Digest) -> Iterator[Staging]:
        directory = self.root / "staging" / f"{key.hex}.{secrets.token_hex(8)}"
        logs = self.root / "logs"
        staging = Staging(
            directory=directory,
            output=directory / _OUTPUT,
            scratch=directory / "scratch",
            log=logs / f"{key.hex}.txt",
        )
        logs.mkdir(parents=True, exist_ok=True)
        try:
            staging.output.mkdir(parents=True)
            staging.scratch.mkdir()
            yield staging
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def _lock(self, step: Step, progress: Progress) -> Iterator[None]:
        path = self._lock_path(step.key.hex)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                progress.note(f"{step.name}: waiting for {holder}, which is making it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _lock_path(self, key_hex: str) -> Path:
        return self.root / "locks" / f"{key_hex}.lock"

    def _sweep(self, own: Digest) -> None:
        """Remove what dead processes left in `staging/`; the caller holds the lock of `own`."""
        for directory in (self.root / "staging").glob("*.*"):
            key_hex = directory.name.partition(".")[0]
            if key_hex == own.hex:
                shutil.rmtree(directory, ignore_errors=True)
                continue
            with suppress(OSError):
                descriptor = os.open(self._lock_path(key_hex), os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
                finally:
                    os.close(descriptor)

    def _discard(self, key: Digest) -> None:
        """Take a damaged entry away; the caller holds its lock."""
        aside = self.root / "staging" / f"{key.hex}.{secrets.token_hex(8)}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        self._entry(key).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    @contextmanager
    def _disk(self, step: Step) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            if error.name != "disk-full":
                raise
            raise self._full(step) from error
        except OSError as error:
            if is_full(error):
                raise self._full(step) from error
            raise Unavailable(
                f"step {step.name}: cannot use {self.root}: {error.strerror or error}",
                hint="check its permissions, or choose another place with --cache-dir",
                reference="cache-not-usable",
            ) from error

    def _full(self, step: Step) -> Unavailable:
        """Made once the staging directory is gone, so that what is free is what a new try has."""
        return Unavailable(
            f"step {step.name}: {self.root} is full: needs about {step.disk_bytes:,} bytes, "
            f"{free_disk_bytes(self.root):,} free with its leftovers removed",
            hint="free space there, or choose another place with --cache-dir",
            reference="disk-full",
        )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(what: str) -> IntegrityError:
    return IntegrityError(
        what, hint="run `enginectl build` again, it makes it anew", reference="step-cache-damaged"
    )
