"""The identity of a GGUF file's tokenizer and chat template, as locks state it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.spec.tokenizer import tokenizer_of_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader
    from engine_pipeline.spec.lock import LockedTokenizer


def header_tokenizer(header: GgufHeader) -> LockedTokenizer | None:
    """Digests over vocabulary and chat template; None if the file carries no vocabulary."""
    return tokenizer_of_gguf(
        {
            key: value.decode()
            for key, value in header.metadata.items()
            if key.startswith("tokenizer.")
        }
    )


def gguf_tokenizer(path: Path) -> LockedTokenizer | None:
    """The same for a file; raises InvalidInput if it is no usable GGUF."""
    return header_tokenizer(read_header(path))
