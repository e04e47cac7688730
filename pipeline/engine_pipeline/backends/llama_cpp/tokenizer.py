"""The identity of a GGUF file's tokenizer and chat template, as locks state it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.spec.tokenizer import tokenizer_of_gguf
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader
    from engine_pipeline.spec.lock import LockedTokenizer
    from engine_registry.digest import Digest


def header_tokenizer(header: GgufHeader) -> LockedTokenizer | None:
    """Digests over vocabulary and chat template; None if the file carries no vocabulary."""
    return tokenizer_of_gguf(
        {
            key: value.decode()
            for key, value in header.metadata.items()
            if key.startswith("tokenizer.")
        }
    )


def gguf_tokenizer(path: Path) -> tuple[Digest, Digest | None]:
    """The digests over the vocabulary and over the chat template, if there is one.

    Raises:
        InvalidInput: no usable GGUF file, or one without a vocabulary.
    """
    tokenizer = header_tokenizer(read_header(path))
    if tokenizer is None:
        raise InvalidInput(
            f"{path.name}: carries no vocabulary",
            hint="lock a GGUF file of the whole model, not an adapter or a projector",
            reference="gguf-without-vocabulary",
        )
    return tokenizer.digest, tokenizer.chat_template
