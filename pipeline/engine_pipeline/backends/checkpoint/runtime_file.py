"""`runtime.json`: which release, image and ranks a checkpoint is served with. Pure.

A checkpoint binds itself to nothing, and the kernels that answer for its quality are the image's.
So the image's digest is among the files, and another image is another engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_registry.documents import Document, canonical_json
from engine_registry.errors import InvalidInput
from engine_registry.record import Parallelism

if TYPE_CHECKING:
    from engine_pipeline.spec.lock import BuildLock

RUNTIME_FILE = "runtime.json"


class CheckpointRuntime(Document):
    """What serves the checkpoint; `image` is None for a server installed beside it."""

    tensorrt_llm: str
    image: str | None
    sku: str
    parallelism: Parallelism


def runtime_of(lock: BuildLock) -> CheckpointRuntime:
    """What a lock pins for serving."""
    return CheckpointRuntime(
        tensorrt_llm=lock.spec.backend.version,
        image=str(lock.image.digest) if lock.image else None,
        sku=lock.spec.target.sku,
        parallelism=lock.spec.target.parallelism,
    )


def runtime_bytes(runtime: CheckpointRuntime) -> bytes:
    """The file's content."""
    return canonical_json(runtime) + b"\n"


def read_runtime(data: bytes, name: str) -> CheckpointRuntime:
    """The file's value.

    Raises:
        InvalidInput: `engine-config-unreadable`.
    """
    try:
        return CheckpointRuntime.model_validate_json(data)
    except ValidationError as error:
        raise InvalidInput(
            f"{name}: not what enginectl writes: {error.errors()[0]['msg']}",
            hint="build the checkpoint again",
            reference="engine-config-unreadable",
        ) from error
