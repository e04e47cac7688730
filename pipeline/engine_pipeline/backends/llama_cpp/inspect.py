"""What the GGUF file of an engine says about itself. Reads its header, never its weights."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.recipes import (
    Choice,
    fallbacks,
    recipe_of_file_type,
    types_for,
)
from engine_pipeline.backends.llama_cpp.tokenizer import header_tokenizer
from engine_pipeline.backends.port import EngineFacts, EngineFile
from engine_pipeline.spec.model import EngineKind
from engine_registry.errors import InvalidInput
from engine_registry.manifest import WEIGHT

if TYPE_CHECKING:
    from pathlib import Path

MODEL_FILE = "model.gguf"


def inspect_engine(engine_dir: Path) -> EngineFacts:
    """Read the facts of the engine in `engine_dir`: of its `model.gguf`, or its only GGUF file.

    `details` holds `recipe` (None if the file was made by no recipe of ours) and `fallbacks`: the
    matrices that got another type than the recipe promises.

    Raises:
        NotFound: there is no such file.
        InvalidInput: not a GGUF file, empty, truncated or of an unknown version; says which.
    """
    path = _model_file(engine_dir)
    header = read_header(path)
    recipe = recipe_of_file_type(header.integer("general.file_type"))
    fell_back = []
    if recipe:
        names = {tensor.name: tensor.type_name for tensor in header.tensors}
        fell_back = fallbacks(
            Choice(wanted=choice.wanted, given=names[name], row=choice.row)
            for name, choice in types_for(recipe, header).items()
        )
    tokenizer = header_tokenizer(header)
    return EngineFacts(
        kind=EngineKind.LLAMA_CPP,
        format="gguf",
        format_version=str(header.version),
        architecture=header.architecture,
        tensor_types=dict(Counter(tensor.type_name for tensor in header.tensors)),
        parameters=sum(tensor.elements for tensor in header.tensors),
        context_tokens=header.integer(f"{header.architecture}.context_length"),
        tokenizer=tokenizer.digest if tokenizer else None,
        chat_template=tokenizer.chat_template if tokenizer else None,
        files=(EngineFile(path=path.name, size_bytes=path.stat().st_size, media_type=WEIGHT),),
        details={
            "recipe": recipe.name if recipe else None,
            "file_type": header.integer("general.file_type"),
            "fallbacks": [
                {
                    "wanted": item.wanted,
                    "given": item.given,
                    "count": item.count,
                    "rows": list(item.rows),
                }
                for item in fell_back
            ],
            "layers": header.integer(f"{header.architecture}.block_count"),
            "embedding_length": header.integer(f"{header.architecture}.embedding_length"),
            "model": header.text("general.name"),
        },
    )


def _model_file(engine_dir: Path) -> Path:
    path = engine_dir / MODEL_FILE
    if path.exists() or not engine_dir.is_dir():
        return path
    others = sorted(engine_dir.glob("*.gguf"))
    if len(others) > 1:
        raise InvalidInput(
            f"{engine_dir.name} has {len(others)} GGUF files and none is {MODEL_FILE}: "
            f"{', '.join(other.name for other in others[:8])}",
            hint="name a directory that holds one engine",
            reference="engine-ambiguous",
        )
    return others[0] if others else path
