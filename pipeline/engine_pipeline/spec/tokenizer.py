"""Identity of tokenizer and chat template by content, from either place they are kept. Pure.

A checkpoint directory keeps them in files of their own, a GGUF file in its metadata. Both give two
digests: one over vocabulary, merges and special tokens, one over the chat template's text, so a
change of either is seen for what it is. Digests from the two places never compare equal; an engine
is compared with its source only where both are GGUF.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from engine_pipeline.spec.lock import LockedTokenizer
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

GGUF_TOKENIZER_PREFIX = "tokenizer.ggml."
GGUF_CHAT_TEMPLATE = "tokenizer.chat_template"

# What transformers and mistral-common read a tokenizer from.
VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
)
SETTINGS_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
TOKENIZER_FILES = (*VOCABULARY_FILES, *SETTINGS_FILES, *TEMPLATE_FILES)


def tokenizer_of_gguf(metadata: Mapping[str, Any]) -> LockedTokenizer | None:
    """Digests from a GGUF file's metadata, as plain values; None if it carries no vocabulary.

    Equal values give equal digests whatever the order of keys and the width of integers.
    """
    values = {
        key: value for key, value in metadata.items() if key.startswith(GGUF_TOKENIZER_PREFIX)
    }
    if not values.get(f"{GGUF_TOKENIZER_PREFIX}tokens"):
        return None
    template = metadata.get(GGUF_CHAT_TEMPLATE)
    return LockedTokenizer(
        digest=_digest_of(values),
        chat_template=_template_digest(template) if isinstance(template, str) else None,
    )


def tokenizer_of_files(files: Mapping[str, bytes], name: str) -> LockedTokenizer | None:
    """Digests from a checkpoint's tokenizer files; None if none of them holds a vocabulary.

    JSON files count by value, so white space does not matter; the chat template inside
    `tokenizer_config.json` counts as template only, and a file of its own goes before it, as
    transformers has it.

    Args:
        files: path → bytes; those not in `TOKENIZER_FILES` are left out.
        name: the source, for errors.
    """
    contents = {
        base: data
        for path, data in sorted(files.items())
        if (base := PurePosixPath(path).name) in TOKENIZER_FILES
    }
    if not contents.keys() & set(VOCABULARY_FILES):
        return None
    settings = {
        base: _json(contents[base], f"{name}: {base}")
        for base in contents
        if base.endswith(".json") and base != "chat_template.json"
    }
    inline = None
    config = settings.get("tokenizer_config.json")
    if isinstance(config, dict):
        inline = config.pop("chat_template", None)
    raw = {
        base: str(Digest.of(contents[base]))
        for base in contents
        if base in VOCABULARY_FILES and not base.endswith(".json")
    }
    if (jinja := contents.get("chat_template.jinja")) is not None:
        inline = jinja.decode(errors="surrogateescape")
    elif (wrapped := contents.get("chat_template.json")) is not None:
        value = _json(wrapped, f"{name}: chat_template.json")
        inline = value.get("chat_template", value) if isinstance(value, dict) else value
    return LockedTokenizer(
        digest=_digest_of({"json": settings, "raw": raw}),
        chat_template=None if inline is None else _template_digest(inline),
    )


def _template_digest(template: Any) -> Digest:
    """Over the text as it is; several named templates count as the JSON that holds them."""
    if isinstance(template, str):
        return Digest.of(template.encode(errors="surrogateescape"))
    return _digest_of(template)


def _digest_of(value: Any) -> Digest:
    # ASCII escapes keep tokens that are no valid UTF-8, which canonical JSON could not carry.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Digest.of(text.encode("ascii"))


def _json(data: bytes, name: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{name}: not JSON: {error}",
            hint="take another revision of the model, or correct the file",
            reference="source-tokenizer-unreadable",
        ) from error
