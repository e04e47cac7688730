"""A build lock: a spec with every reference pinned, and the build key over its inputs.

Pure. The lock lies beside the spec, made for review in a pull request (`lock_file`). The *build
key* says "same inputs": it covers everything that can change the engine and nothing else. File
digests, tool versions and image digest are in; where the files came from and under which name, the
serving settings and the suites are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from engine_pipeline.spec.model import BuildSpec, SourceUri
from engine_pipeline.spec.shape import ModelShape
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping


class LockedFile(Value):
    """One file of a source: path below the source, exact size, SHA-256."""

    path: Annotated[str, Field(min_length=1, max_length=255)]
    size_bytes: Annotated[int, Field(ge=0)]
    digest: Digest

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = path.split("/")
        if not path.isprintable() or "\\" in path or {"", ".", ".."} & set(parts):
            msg = f"{path!r} is no plain path below the source"
            raise ValueError(msg)
        return path


class LockedSource(Value):
    """A source pinned to files; `revision` is a 40-hex commit, or a package version."""

    source: SourceUri
    revision: str
    files: Annotated[tuple[LockedFile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_each_file_once(self) -> Self:
        paths = [item.path for item in self.files]
        if paths != sorted(set(paths)):
            msg = "files are not sorted by path, each one once"
            raise ValueError(msg)
        return self

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(item.size_bytes for item in self.files)


class LockedTokenizer(Value):
    """Tokenizer and chat template by content, wherever they are stored.

    Attributes:
        digest: over vocabulary, merges and special tokens.
        chat_template: over the template text; None if the model has none.
    """

    digest: Digest
    chat_template: Digest | None


class LockedImage(Value):
    """A container image reference and the digest it was at."""

    reference: str
    digest: Digest


class BuildLock(Document):
    """A spec and everything it was pinned to.

    Attributes:
        tools: exact versions of every package whose code can change the engine's bytes.
        shape: what the source's `config.json` says of the model's size, whose digest is among the
            files'; None if it has no such file.
    """

    spec: BuildSpec
    source: LockedSource
    tokenizer: LockedTokenizer
    image: LockedImage | None = None
    calibration: LockedSource | None = None
    tools: dict[str, str]
    shape: ModelShape | None = None


def build_inputs(lock: BuildLock, host: Mapping[str, str]) -> dict[str, Any]:
    """Everything the build key covers, as plain JSON values.

    Args:
        lock: the lock.
        host: what the building host adds, e.g. driver version; empty where the engine does not
            depend on it.
    """
    spec = lock.spec
    return {
        "model": {"name": spec.model.name, "allow_code": spec.model.allow_code},
        "source": lock.source.model_dump(mode="json", include={"files"}),
        "tokenizer": lock.tokenizer.model_dump(mode="json"),
        "target": spec.target.model_dump(mode="json"),
        "precision": spec.precision.model_dump(mode="json"),
        "backend": spec.backend.model_dump(mode="json", exclude={"image"}),
        "limits": spec.limits.model_dump(mode="json"),
        "calibration": {
            "settings": spec.calibration.model_dump(mode="json", include={"samples", "max_tokens"}),
            "files": lock.calibration.model_dump(mode="json", include={"files"})["files"],
        }
        if spec.calibration and lock.calibration
        else None,
        "image": str(lock.image.digest) if lock.image else None,
        "tools": dict(lock.tools),
        "host": dict(host),
    }


def build_key(lock: BuildLock, host: Mapping[str, str]) -> Digest:
    """The digest of every input that can change the engine."""
    return Digest.of(canonical_json(build_inputs(lock, host)))
