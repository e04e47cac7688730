"""The directory of a registry: founding it, refusing what is none, temporary files in it.

Temporary files live in `<root>/tmp/` and are locked (`flock`) by their writer for as long as it
lives, on any host and in any container; one that nobody has locked is a leftover of a killed
writer and is swept.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.filesystem.durable import (
    READ_ONLY,
    ensure_dir,
    reading,
    sync_dir,
    write_all,
    writing,
)
from engine_registry.documents import seal, unseal_body
from engine_registry.errors import Incompatible, InvalidInput, NotFound
from engine_registry.record import FORMAT, RegistryInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from datetime import datetime

TMP = "tmp"
CACHE = "cache"
# Between creating and locking a temporary file nobody holds its lock; no sweep that early.
SWEEP_AFTER_S = 600.0
# What a directory may hold and still count as empty: our own, and a fresh ext4 volume's.
_EMPTY = {TMP, CACHE, "lost+found"}
# Parts of a path that lead to where they are.
_NOWHERE = frozenset({"", "."})


class StoreRoot:
    """A registry's directory.

    Args:
        path: absolute; need not exist yet.
        clock: gives the aware UTC time, for the date in `registry.json`.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self.path = path
        self.tmp_dir = path / TMP
        self._clock = clock
        self._known = False
        self._swept = False

    def path_of(self, name: str) -> Path:
        """The path of a stored name; a name that could leave the root is refused."""
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or _NOWHERE.issuperset(parts):
            raise InvalidInput(
                f"not a stored name: {name[:120]!r}",
                hint="names in a registry are relative and stay inside it",
                reference="invalid-stored-name",
            )
        return self.path / name

    def require(self) -> None:
        """Confirm that there is a registry here to read from.

        Raises:
            NotFound: there is none (`registry-missing`).
            InvalidInput: the directory holds something else (`not-a-registry`).
            Incompatible: a registry in a format that this program does not know.
        """
        if self._known:
            return
        if not self._check_info():
            self._refuse_foreign()
            raise NotFound(
                f"no registry at {self.path}",
                hint="set ENGINECTL_REGISTRY=file://DIR to an existing one, or run `enginectl "
                "build` to start one here",
                reference="registry-missing",
            )

    def prepare(self) -> None:
        """Make this a registry that can be written to; founds it on the first write ever."""
        if not self._known and not self._check_info():
            self._refuse_foreign()
            self._found()
        if not self._swept:
            self._swept = True
            self.sweep()

    def _check_info(self) -> bool:
        with reading(self.path, f"read {layout.REGISTRY}"):
            try:
                data = (self.path / layout.REGISTRY).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return False
        body, _ = unseal_body(data, layout.REGISTRY)
        found = stated_format(body)
        if found != FORMAT:
            raise Incompatible(
                f"registry {self.path}: format is {found!r}, this enginectl knows {FORMAT!r}",
                hint="upgrade enginectl to the version that wrote this registry",
                reference="registry-format-unknown",
            )
        self._known = True
        return True

    def _refuse_foreign(self) -> None:
        try:
            held = sorted(set(os.listdir(self.path)) - _EMPTY)  # noqa: PTH208 names suffice
        except FileNotFoundError:
            return
        except NotADirectoryError:
            held = [self.path.name]
        except PermissionError:
            return  # the read or write that follows says so with its own name
        if held and not self._check_info():
            raise InvalidInput(
                f"{self.path} is not a registry: it holds {held[0]!r} and no {layout.REGISTRY}",
                hint=layout.hint_without_info(held, str(self.path), "cp")
                or "point ENGINECTL_REGISTRY at a registry, or at an empty or new directory",
                reference="not-a-registry",
            )

    def _found(self) -> None:
        data = seal(RegistryInfo(created_at=self._clock()))
        with writing(self.path, "create the registry"):
            ensure_dir(self.path)
            ensure_dir(self.tmp_dir)
            with self.temporary() as (fd, temp):
                write_all(fd, data)
                os.fchmod(fd, READ_ONLY)
                os.fsync(fd)
                with suppress(FileExistsError):
                    os.link(temp, self.path / layout.REGISTRY)
            sync_dir(self.path)
        self._check_info()

    def temp_path(self) -> Path:
        """A fresh name in the temporary directory."""
        return self.tmp_dir / f"{os.getpid()}-{secrets.token_hex(8)}"

    @contextmanager
    def temporary(self) -> Iterator[tuple[int, Path]]:
        """A new, locked, empty temporary file; its name is gone afterwards."""
        ensure_dir(self.tmp_dir)
        temp = self.temp_path()
        fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            lock_temporary(fd)
            yield fd, temp
        finally:
            temp.unlink(missing_ok=True)
            os.close(fd)

    def walk(self, skipped: Container[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every name below the root and its entry, in order; what vanishes meanwhile is left out.

        Args:
            skipped: top-level folders that are not looked into.

        Raises:
            FileNotFoundError: there is no root.
        """
        waiting = self._entries("")[::-1]
        while waiting:
            name, entry = waiting.pop()
            if name in skipped:
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield name, entry
                continue
            with suppress(FileNotFoundError):  # emptied and removed meanwhile
                waiting += self._entries(f"{name}/")[::-1]

    def _entries(self, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
        with os.scandir(f"{self.path}/{folder}") as entries:
            found = [(f"{folder}{entry.name}", entry) for entry in entries]
        return sorted(found, key=itemgetter(0))

    def sweep(self, older_than_s: float = SWEEP_AFTER_S) -> list[Path]:
        """Remove temporary files whose writer is dead; says which. Never fails an act."""
        gone: list[Path] = []
        with suppress(OSError):
            for entry in list(os.scandir(self.tmp_dir)):
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and _abandoned(entry, older_than_s):
                        Path(entry.path).unlink()
                        gone.append(Path(entry.path))
        return gone


def stated_format(body: bytes) -> object:
    """The format that a `registry.json` of any version states; None if it states none."""
    try:
        info = json.loads(body)
    except ValueError:
        return None
    return info.get("format") if isinstance(info, dict) else None


def lock_temporary(fd: int) -> None:
    """Say that the writer of this temporary file is alive, for as long as it is."""
    # Shared: two writers may have linked in one file. Where there are no locks (ENOLCK) the sweep
    # cannot take one either and lets the file be.
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _abandoned(entry: os.DirEntry[str], older_than_s: float) -> bool:
    # ctime: a linked-in temporary keeps the modification time of its source.
    if time.time() - entry.stat(follow_symlinks=False).st_ctime < older_than_s:
        return False
    fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
