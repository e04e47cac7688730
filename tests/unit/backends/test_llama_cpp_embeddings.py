"""A GGUF file as an embedding model: how it pools, and what its server is told."""

from __future__ import annotations

import pytest

from engine_pipeline.backends.llama_cpp.embeddings import pooling_of, serve_embeddings
from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader
from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, scalar, text
from engine_registry.errors import InvalidInput


def header(pooling: int | None = None, context: int | None = None) -> GgufHeader:
    metadata = {"general.architecture": text("bert")}
    for key, value in {"pooling_type": pooling, "context_length": context}.items():
        if value is not None:
            metadata[f"bert.{key}"] = scalar(ValueType.UINT32, value)
    return GgufHeader(version=3, metadata=metadata, tensors=(), alignment=32)


@pytest.mark.parametrize(
    ("stated", "wanted", "found"),
    [
        (1, None, "mean"),
        (2, None, "cls"),
        (3, None, "last"),
        (2, "mean", "mean"),
        (None, "last", "last"),
    ],
)
def test_pooling_is_the_files_own_unless_another_is_wanted(stated, wanted, found):
    assert pooling_of(header(stated), wanted, "x.gguf") == found


@pytest.mark.parametrize("stated", [None, 0, 4, 99])
def test_a_file_that_pools_in_no_way_that_gives_one_vector_is_refused(stated):
    with pytest.raises(InvalidInput, match=r"x\.gguf: a bert model that does not say") as caught:
        pooling_of(header(stated), None, "x.gguf")
    assert caught.value.name == "pooling-not-stated"


@pytest.mark.parametrize(("context", "tokens"), [(512, "512"), (8192, "2048"), (None, "2048")])
def test_the_longest_text_is_what_the_model_was_made_for_or_less(context, tokens):
    command = serve_embeddings("x.gguf", header(1, context), pooling="mean", max_tokens=2048)
    argv = dict(zip(command.argv[3::2], command.argv[4::2], strict=True))
    # Pooling takes the whole text in one batch.
    assert argv["--context"] == argv["--batch-tokens"] == tokens
    assert (argv["--model"], argv["--pooling"]) == ("{engine}/x.gguf", "mean")
    assert command.model_name == argv["--alias"]
