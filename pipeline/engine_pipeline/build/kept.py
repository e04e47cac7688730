"""Files that a build leaves beside its engine and that the next one may use: a timing cache.

They are attached to the engine, each under its digest, and are no part of it: an engine's own
digest does not change with them. `enginectl export` writes them out with the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.attachments import Attachment
from engine_registry.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from engine_pipeline.build.plan import Step

KEPT_ARTIFACT = "application/vnd.engine-ci.build-byproduct.v1"
# Keys of the annotations of an attached file.
KEPT_FILE = "org.engine-ci.kept.file"
KEPT_STEP = "org.engine-ci.kept.step"
KEPT_DIGEST = "org.engine-ci.kept.digest"
_BYTES = "application/octet-stream"


def kept_files(steps: Iterable[tuple[Step, Path]]) -> tuple[Attachment, ...]:
    """One attachment per file that a step keeps.

    Args:
        steps: each with its finished output.
    """
    return tuple(
        _attachment(step.name, name, (output / name).read_bytes())
        for step, output in steps
        for name in step.keep
    )


def _attachment(step: str, name: str, data: bytes) -> Attachment:
    return Attachment(
        artifact_type=KEPT_ARTIFACT,
        files=((name, data, _BYTES),),
        annotations={
            KEPT_FILE: name,
            KEPT_STEP: step,
            KEPT_DIGEST: str(Digest.of(data)),
        },
    )
