"""A Hugging Face `tokenizer.json` of the byte-level BPE kind as GGUF metadata. Pure.

llama.cpp has its own code for how text is split before merging and knows it by name. The name is
found by comparing what `tokenizer.json` states with a table; an unknown splitter is refused, since
a near miss gives a model that answers slightly worse and never an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, array, scalar, text
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.backends.llama_cpp.gguf_values import MetadataValue

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# What `tokenizer.json` states → the name of the same splitter in llama.cpp (src/llama-vocab.cpp).
SPLITTERS: Mapping[tuple[tuple[Any, ...], ...], str] = {
    (("ByteLevel", False, True),): "gpt-2",
    (("Digits", True), ("ByteLevel", False, True)): "smollm",
    (("Split", _LLAMA3_WORDS, "Isolated", False), ("ByteLevel", False, False)): "llama-bpe",
}
# Token types of llama.h.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_ROLES = (
    ("bos_token", "bos_token_id"),
    ("eos_token", "eos_token_id"),
    ("unk_token", "unknown_token_id"),
    ("pad_token", "padding_token_id"),
)


def tokenizer_metadata(
    tokenizer: Mapping[str, Any],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    chat_template: str | None,
) -> dict[str, MetadataValue]:
    """GGUF metadata of a tokenizer.

    Args:
        tokenizer: `tokenizer.json`.
        settings: `tokenizer_config.json`; empty if there is none.
        config: the model's `config.json`.
        chat_template: its text.

    Raises:
        InvalidInput: `tokenizer-unsupported` for another kind or an unknown splitter, by name.
    """
    model = tokenizer.get("model") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        kind = "BPE with byte fallback" if model.get("byte_fallback") else model.get("type")
        raise _unsupported(f"model {kind}", "byte-level BPE")
    if tokenizer.get("normalizer"):
        raise _unsupported(f"normaliser {tokenizer['normalizer'].get('type')}", "none")
    splitter = _splitter(tokenizer.get("pre_tokenizer") or {})
    tokens, types, ids = _vocabulary(model.get("vocab") or {}, tokenizer, config["vocab_size"])
    metadata = {
        "tokenizer.ggml.model": text("gpt2"),
        "tokenizer.ggml.pre": text(splitter),
        "tokenizer.ggml.tokens": array(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(ValueType.INT32, types),
        "tokenizer.ggml.merges": array(ValueType.STRING, _merges(model.get("merges") or [])),
    }
    contents: dict[str, str] = {}
    for role, key in _ROLES:
        number = _role(role, settings, config, ids)
        if number is not None:
            contents[role] = tokens[number]
            metadata[f"tokenizer.ggml.{key}"] = scalar(ValueType.UINT32, number)
    before, after = _template(tokenizer.get("post_processor") or {})
    begins = settings.get("add_bos_token")
    if not isinstance(begins, bool):
        begins = "bos_token" in contents and before[:1] == [contents["bos_token"]]
    ends = settings.get("add_eos_token")
    if not isinstance(ends, bool):
        ends = "eos_token" in contents and after[-1:] == [contents["eos_token"]]
    metadata["tokenizer.ggml.add_bos_token"] = scalar(ValueType.BOOL, begins)
    metadata["tokenizer.ggml.add_eos_token"] = scalar(ValueType.BOOL, ends)
    metadata["tokenizer.ggml.add_space_prefix"] = scalar(ValueType.BOOL, False)
    if chat_template is not None:
        metadata["tokenizer.chat_template"] = text(chat_template)
    return metadata


def _splitter(stated: Mapping[str, Any]) -> str:
    parts = stated.get("pretokenizers") if stated.get("type") == "Sequence" else [stated]
    shape = tuple(_part(part) for part in parts or [])
    if shape not in SPLITTERS:
        named = " + ".join(str(part[0]) for part in shape) or "none"
        raise _unsupported(f"splitter {named}", ", ".join(SPLITTERS.values()))
    return SPLITTERS[shape]


def _part(part: Mapping[str, Any]) -> tuple[Any, ...]:
    match part.get("type"):
        case "Digits":
            return "Digits", part.get("individual_digits", False)
        case "ByteLevel":
            return "ByteLevel", part.get("add_prefix_space", True), part.get("use_regex", True)
        case "Split":
            pattern = (part.get("pattern") or {}).get("Regex")
            return "Split", pattern, part.get("behavior"), part.get("invert", False)
        case other:
            return (str(other),)


def _vocabulary(
    vocab: Mapping[str, int], tokenizer: Mapping[str, Any], size: int
) -> tuple[list[str], list[int], dict[str, int]]:
    """Texts and types of all tokens by id, and ids by text."""
    added = {entry["id"]: entry for entry in tokenizer.get("added_tokens") or []}
    ids = dict(vocab) | {entry["content"]: number for number, entry in added.items()}
    if not ids or (highest := max(ids.values())) >= size:
        raise InvalidInput(
            f"tokenizer.json has token ids up to {max(ids.values(), default=-1)}, "
            f"config.json a vocabulary of {size}",
            hint="the checkpoint's files do not belong together: take another revision",
            reference="checkpoint-unreadable",
        )
    tokens = [f"[PAD{number}]" for number in range(highest + 1)]
    tokens += [f"[PAD{number}]" for number in range(highest + 1, size)]
    types = [_UNUSED] * size
    for content, number in vocab.items():
        tokens[number], types[number] = content, _NORMAL
    for number, entry in added.items():
        tokens[number] = entry["content"]
        types[number] = _CONTROL if entry.get("special") else _USER_DEFINED
    return tokens, types, ids


def _merges(merges: list[Any]) -> list[str]:
    # Newer files hold pairs, older ones `left right`; a space within a part is written as Ġ.
    return [
        item if isinstance(item, str) else " ".join(part.replace(" ", "Ġ") for part in item)
        for item in merges
    ]


def _role(
    role: str, settings: Mapping[str, Any], config: Mapping[str, Any], ids: Mapping[str, int]
) -> int | None:
    stated = settings.get(role)
    content = stated.get("content") if isinstance(stated, dict) else stated
    if isinstance(content, str) and content in ids:
        return ids[content]
    number: Any = config.get(f"{role}_id")
    number = number[0] if isinstance(number, list) and number else number
    valid = isinstance(number, int) and 0 <= number < config["vocab_size"]
    return int(number) if valid else None


def _template(processor: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Special tokens that are put before and after every text."""
    parts = processor.get("processors") or [processor]
    for part in parts:
        if part.get("type") == "TemplateProcessing":
            before: list[str] = []
            after: list[str] = []
            place = before
            for item in part.get("single") or []:
                if "SpecialToken" in item:
                    place.append(item["SpecialToken"].get("id", ""))
                else:
                    place = after
            return before, after
    return [], []


def _unsupported(found: str, known: str) -> InvalidInput:
    return InvalidInput(
        f"tokenizer.json: {found} is not convertible; known: {known}",
        hint="lock a GGUF file of this model instead, made by llama.cpp's own converter",
        reference="tokenizer-unsupported",
    )
