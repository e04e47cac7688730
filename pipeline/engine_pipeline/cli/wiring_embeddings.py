"""The part of the composition root that says where embeddings come from."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, cast

from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_pipeline.backends.port import ServeCommand
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.embedding_model import EmbeddingModel, LocalEmbeddings, Pooling


def embeddings_of(
    shell: Shell, model: EmbeddingModel | None, *, load_timeout_s: float
) -> EmbeddingPlace | None:
    """Where a policy's embeddings come from; nobody is asked, and nothing loaded, yet.

    Args:
        shell: this machine.
        model: as the policy names it.
        load_timeout_s: how long a file may take to load.

    Raises:
        NotFound, InvalidInput: the file is not there, not the pinned one, or no embedding model;
            the variable that should hold an endpoint's key holds none.
        Incompatible: nothing that serves GGUF files is installed.
    """
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.embedding_model import LocalEmbeddings
    from engine_pipeline.gates.external import key_of, root_of

    if model is None:
        return None
    if isinstance(model, LocalEmbeddings):
        return _of_file(shell, model, load_timeout_s)
    endpoint = Endpoint(
        base_url=root_of(model.endpoint),
        model=model.model,
        api_key=key_of(model.api_key_env, os.environ),
    )
    return EmbeddingPlace(serve=lambda: nullcontext(endpoint))


def _of_file(shell: Shell, model: LocalEmbeddings, load_timeout_s: float) -> EmbeddingPlace:
    from engine_pipeline.backends.llama_cpp.embeddings import pooling_of, serve_embeddings
    from engine_pipeline.backends.llama_cpp.gguf_header import read_header
    from engine_pipeline.backends.llama_cpp.runtime import RUNTIME, installed
    from engine_pipeline.gates.embedder import EmbeddingPlace

    path = pinned_file(shell.channels_file.parent, model)
    runtime = f"{RUNTIME} {installed(RUNTIME)}"
    header = read_header(path)
    pooling = pooling_of(header, model.pooling, model.file)
    command = serve_embeddings(path.name, header, pooling=pooling, max_tokens=model.max_tokens)
    return EmbeddingPlace(
        serve=lambda: _served(shell, command, path.parent, load_timeout_s),
        pooling=cast("Pooling", pooling),
        runtime=runtime,
    )


@contextmanager
def _served(
    shell: Shell, command: ServeCommand, folder: Path, load_timeout_s: float
) -> Iterator[Endpoint]:
    from engine_pipeline.gates.scratch import scratch
    from engine_pipeline.gates.server import serving

    shell.progress.phase("embeddings")
    with (
        scratch(shell.cache_dir / "gates") as directory,
        serving(
            command,
            folder.absolute(),
            progress=shell.progress,
            log_path=directory / "embeddings.log",
            timeout_s=load_timeout_s,
        ) as server,
    ):
        yield server.endpoint


def pinned_file(folder: Path, model: LocalEmbeddings) -> Path:
    """The GGUF file that a policy pins.

    Args:
        folder: of `channels.yaml`.
        model: as the policy names it.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it is another one.
    """
    from engine_registry.digest import Digest

    path = folder / model.file
    try:
        with path.open("rb") as stream:
            found = Digest.of_stream(stream)
    except OSError as error:
        raise NotFound(
            f"embedding model {model.file}: {error.strerror}",
            hint=f"put it at {path}, or name another file under `embeddings` in channels.yaml",
            reference="embedding-model-missing",
        ) from error
    if found != model.digest:
        raise InvalidInput(
            f"embedding model {model.file} is {found.short}, channels.yaml pins "
            f"{model.digest.short}",
            hint=f"if the change is meant, pin {found} there; its numbers are not the other "
            "model's, so take bars anew",
            reference="embedding-model-not-the-pinned-one",
        )
    return path
