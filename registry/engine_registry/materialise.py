"""Laying an engine's files out in a directory, whole or not at all."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from engine_registry.errors import IntegrityError, InvalidInput, Unavailable
from engine_registry.partial import partial_directory
from engine_registry.room import disk_full, is_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_registry.drafts import StoredEngine
    from engine_registry.manifest import Manifest
    from engine_registry.store import BlobStore, Stores

    # Where a whole engine's files are laid out from; entered for as long as that takes.
    Near = Callable[[StoredEngine, Stores], AbstractContextManager[BlobStore]]


def from_the_store(_: StoredEngine, stores: Stores) -> AbstractContextManager[BlobStore]:
    """Lay engines out from the registry itself."""
    return nullcontext(stores.blobs)


def write_engine(blobs: BlobStore, manifest: Manifest, directory: Path) -> None:
    """Put every layer of `manifest` at its title below `directory`, which must not exist.

    Raises:
        InvalidInput: the directory exists.
        IntegrityError: the manifest has a layer without a file name.
        NotFound: a blob is missing.
        Unavailable: no room (`disk-full`), no right.
    """
    with new_directory(directory, manifest.size_bytes) as partial:
        for layer in manifest.layers:
            if layer.title is None:
                raise IntegrityError(
                    f"engine layer {layer.digest}: has no file name",
                    hint="inspect it with `enginectl inspect` or any OCI tool",
                    reference="manifest-not-readable",
                )
            path = partial / layer.title
            path.parent.mkdir(parents=True, exist_ok=True)
            blobs.materialise(layer.digest, path)


@contextmanager
def new_directory(directory: Path, need_bytes: int) -> Iterator[Path]:
    """A temporary sibling that becomes `directory` when the block ends, or is removed.

    Args:
        directory: must not exist.
        need_bytes: of all that goes into it, unless the file system shares it.
    """
    if directory.exists() or directory.is_symlink():
        raise InvalidInput(
            f"cannot write {directory}: it exists",
            hint="name a directory that does not exist yet",
            reference="path-exists",
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with partial_directory(directory) as partial:
            partial.chmod(0o755)
            yield partial
            partial.rename(directory)
    except Unavailable as error:
        if is_full(error):  # names a file in the sibling, which is gone
            raise disk_full(directory, need_bytes) from error
        raise
    except OSError as error:
        if is_full(error):
            raise disk_full(directory, need_bytes) from error
        raise Unavailable(
            f"cannot write {directory}: {error.strerror or error}",
            hint="check that its parent is there and writable, then run the command again",
            reference="directory-not-writable",
        ) from error
