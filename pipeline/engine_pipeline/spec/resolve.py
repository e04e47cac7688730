"""Turns a spec into a lock: every reference pinned, every file by digest.

The only place where a branch, a tag or an image name is looked up. From here on a build takes what
the lock says or fails.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from engine_pipeline.progress import Silent
from engine_pipeline.sources.port import Purpose, Wanted
from engine_pipeline.sources.schemes import open_source
from engine_pipeline.spec.hardware import refuse_impossible
from engine_pipeline.spec.lock import BuildLock, LockedImage
from engine_pipeline.spec.shape import shape_of_config
from engine_pipeline.spec.tokenizer import TOKENIZER_FILES, tokenizer_of_files
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from engine_pipeline.progress import Progress
    from engine_pipeline.sources.port import ImageResolver, Source
    from engine_pipeline.spec.lock import LockedSource, LockedTokenizer
    from engine_pipeline.spec.model import BuildSpec
    from engine_pipeline.spec.shape import ModelShape


def resolve(
    spec: BuildSpec,
    base_dir: Path,
    tools: Mapping[str, str],
    *,
    gguf_tokenizer: Callable[[Path], LockedTokenizer | None],
    images: ImageResolver | None = None,
    sources: Callable[[str, Path], Source] = open_source,
    progress: Progress | None = None,
) -> BuildLock:
    """Pin everything that `spec` refers to.

    Args:
        spec: what to build.
        base_dir: the directory of the spec, which `file://dir` is relative to.
        tools: exact versions of whatever can change the engine's bytes, from the backend.
        gguf_tokenizer: reads the tokenizer's identity from a GGUF file.
        images: looks image tags up; None takes only references that have a digest already.
        sources: opens the source of a URI.
        progress: is told about listing, downloads and hashing.

    Raises:
        InvalidInput: something in the spec cannot be pinned or is refused; names it.
        Incompatible: precision and target do not go together.
        NotFound: no such source, revision or file.
        Unavailable: a source does not answer; safe to run again.
    """
    progress = progress or Silent()
    refuse_impossible(spec)
    image = _image(spec, images)
    model = Wanted(
        uri=spec.model.source,
        revision=spec.model.revision,
        patterns=spec.model.files,
        allow_code=spec.model.allow_code,
    )
    source = sources(model.uri, base_dir)
    locked = source.resolve(model, progress)
    calibration = None
    if spec.calibration is not None:
        data = Wanted(
            uri=spec.calibration.source,
            revision=spec.calibration.revision,
            purpose=Purpose.CALIBRATION,
        )
        calibration = sources(data.uri, base_dir).resolve(data, progress)
    return BuildLock(
        spec=spec,
        source=locked,
        tokenizer=_tokenizer(source, locked, gguf_tokenizer, progress),
        image=image,
        calibration=calibration,
        tools=dict(sorted(tools.items())),
        shape=_shape(source, locked, progress),
    )


def _shape(source: Source, locked: LockedSource, progress: Progress) -> ModelShape | None:
    """From the checkpoint's `config.json`; None where there is none, or it is no decoder's."""
    for file in locked.files:
        if file.path == "config.json":
            data = source.local_path(locked, file, progress).read_bytes()
            try:
                config = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(
                    f"{locked.source}: config.json: not JSON: {error}",
                    hint="take another revision of the model, or correct the file",
                    reference="source-config-unreadable",
                ) from error
            return shape_of_config(config) if isinstance(config, dict) else None
    return None


def _tokenizer(
    source: Source,
    locked: LockedSource,
    gguf_tokenizer: Callable[[Path], LockedTokenizer | None],
    progress: Progress,
) -> LockedTokenizer:
    """From the files of a checkpoint or, where there are none, from the first GGUF file."""
    texts = {
        file.path: source.local_path(locked, file, progress).read_bytes()
        for file in locked.files
        if PurePosixPath(file.path).name in TOKENIZER_FILES
    }
    found = tokenizer_of_files(texts, locked.source)
    ggufs = [file for file in locked.files if file.path.lower().endswith(".gguf")]
    if ggufs:
        # The vocabulary inside is what the engine will use, whatever lies beside it.
        found = gguf_tokenizer(source.local_path(locked, ggufs[0], progress)) or found
    if found is None:
        raise InvalidInput(
            f"{locked.source}: no tokenizer among the files taken",
            hint=f"add it to model.files; one of {', '.join(TOKENIZER_FILES[:4])}",
            reference="source-has-no-tokenizer",
        )
    return found


def _image(spec: BuildSpec, images: ImageResolver | None) -> LockedImage | None:
    reference = spec.backend.image
    if reference is None:
        return None
    name, at, digest = reference.partition("@")
    if at:
        return LockedImage(reference=reference, digest=Digest.parse(digest))
    if images is None:
        raise InvalidInput(
            f"backend.image {name}: a tag can move, and nothing here can look it up",
            hint=f"write {name}@sha256:…; `docker buildx imagetools inspect {name}` shows it",
            reference="image-not-pinned",
        )
    return LockedImage(reference=reference, digest=images.digest_of(reference))
