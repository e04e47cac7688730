"""How a GGUF file is served as an embedding model. Light to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.port import ServeCommand
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader

# By number, as `{architecture}.pooling_type` of a GGUF file has them (llama.h); 0 is none, 4 scores
# pairs of texts.
_BY_NUMBER = {1: "mean", 2: "cls", 3: "last"}
POOLINGS = tuple(_BY_NUMBER.values())
_SERVER = "engine_pipeline.backends.llama_cpp.server"


def pooling_of(header: GgufHeader, wanted: str | None, name: str) -> str:
    """How the vectors of a text's tokens become one: as wanted, or else as the file says.

    Raises:
        InvalidInput: `pooling-not-stated`: nobody says.
    """
    number = header.integer(f"{header.architecture}.pooling_type")
    found = wanted or _BY_NUMBER.get(number if number is not None else -1)
    if found is None:
        raise InvalidInput(
            f"{name}: a {header.architecture or 'nameless'} model that does not say how its "
            f"vectors are pooled; there are {', '.join(POOLINGS)}",
            hint="add `pooling:` as the model's card has it, or name a model made for embeddings",
            reference="pooling-not-stated",
        )
    return found


def serve_embeddings(
    file: str, header: GgufHeader, *, pooling: str, max_tokens: int
) -> ServeCommand:
    """The command that serves the file in the engine directory, one text at a time.

    Args:
        file: its name there.
        header: what it says of itself.
        pooling: one of POOLINGS.
        max_tokens: of the longest text; what the model was made for, if that is less.
    """
    limit = header.integer(f"{header.architecture}.context_length") or max_tokens
    tokens = str(min(limit, max_tokens))
    options = {
        "model": f"{{engine}}/{file}",
        "port": "{port}",
        "slots": "1",
        "context": tokens,
        "batch-tokens": tokens,
        "prompt-cache-mib": "0",
        "alias": "embeddings",
        "pooling": pooling,
    }
    argv = [item for key, value in options.items() for item in (f"--{key}", value)]
    return ServeCommand(
        argv=("{python}", "-m", _SERVER, *argv), health_path="/health", model_name="embeddings"
    )
