from __future__ import annotations

import json
from typing import Any

import pytest

from engine_pipeline.spec.tokenizer import tokenizer_of_files, tokenizer_of_gguf
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

GGUF: dict[str, Any] = {
    "general.name": "tiny",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "\udcff"],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": "{{ messages }}",
}
FILES = {
    "tokenizer.json": b'{"model": {"vocab": {"a": 0}}}',
    "tokenizer_config.json": b'{"eos_token": "b", "chat_template": "{{ messages }}"}',
    "special_tokens_map.json": b'{"eos_token": "b"}',
    "merges.txt": b"a b\n",
    "config.json": b"{}",
}
TEMPLATE = Digest.of(b"{{ messages }}")


def of_files(changes: dict[str, bytes | None] | None = None) -> Any:
    merged = {**FILES, **(changes or {})}
    return tokenizer_of_files({k: v for k, v in merged.items() if v is not None}, "hf://org/m")


def test_a_gguf_file_gives_vocabulary_and_template_apart() -> None:
    found = tokenizer_of_gguf(GGUF)
    assert found is not None
    assert found.chat_template == TEMPLATE
    other = tokenizer_of_gguf({**GGUF, "tokenizer.chat_template": "{{ other }}"})
    assert other is not None
    assert other.digest == found.digest
    assert other.chat_template != found.chat_template


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.tokens": ["b", "a", "\udcff"]},
        {"tokenizer.ggml.merges": []},
        {"tokenizer.ggml.eos_token_id": 2},
        {"tokenizer.ggml.add_bos_token": True},
        {"tokenizer.ggml.pre": "smollm"},
    ],
)
def test_any_change_of_the_vocabulary_is_another_tokenizer(change: dict[str, Any]) -> None:
    base, other = tokenizer_of_gguf(GGUF), tokenizer_of_gguf({**GGUF, **change})
    assert base is not None
    assert other is not None
    assert other.digest != base.digest


def test_what_is_no_part_of_the_tokenizer_does_not_matter() -> None:
    reordered = dict(reversed(list({**GGUF, "general.name": "other"}.items())))
    assert tokenizer_of_gguf(reordered) == tokenizer_of_gguf(GGUF)


def test_a_gguf_file_without_vocabulary_has_no_tokenizer() -> None:
    assert tokenizer_of_gguf({"general.name": "tiny"}) is None
    assert tokenizer_of_gguf({**GGUF, "tokenizer.ggml.tokens": []}) is None


def test_a_gguf_file_without_template_has_a_tokenizer_all_the_same() -> None:
    found = tokenizer_of_gguf({k: v for k, v in GGUF.items() if "template" not in k})
    assert found is not None
    assert found.chat_template is None


def test_a_checkpoint_gives_vocabulary_and_template_apart() -> None:
    assert of_files().chat_template == TEMPLATE
    other = of_files(
        {"tokenizer_config.json": b'{"eos_token": "b", "chat_template": "{{ other }}"}'}
    )
    assert other.digest == of_files().digest
    assert other.chat_template != TEMPLATE


def test_white_space_in_json_does_not_matter_and_values_do() -> None:
    spaced = json.dumps(json.loads(FILES["tokenizer.json"]), indent=4).encode()
    assert of_files({"tokenizer.json": spaced}) == of_files()
    changed = b'{"model": {"vocab": {"a": 1}}}'
    assert of_files({"tokenizer.json": changed}).digest != of_files().digest


@pytest.mark.parametrize("path", ["special_tokens_map.json", "merges.txt"])
def test_every_tokenizer_file_counts(path: str) -> None:
    assert of_files({path: None}).digest != of_files().digest


def test_other_files_do_not_count() -> None:
    assert of_files({"config.json": b"[1]", "README.md": b"x"}) == of_files()


def test_a_template_file_goes_before_the_one_inside_the_settings() -> None:
    found = of_files({"chat_template.jinja": b"{{ jinja }}"})
    assert found.chat_template == Digest.of(b"{{ jinja }}")
    assert found.digest == of_files().digest
    wrapped = of_files({"chat_template.json": b'{"chat_template": "{{ messages }}"}'})
    assert wrapped.chat_template == TEMPLATE


def test_several_named_templates_have_a_digest_too() -> None:
    named = b'{"eos_token": "b", "chat_template": [{"name": "tool_use", "template": "x"}]}'
    found = of_files({"tokenizer_config.json": named})
    assert found.chat_template not in {None, TEMPLATE}


def test_a_checkpoint_without_vocabulary_has_no_tokenizer() -> None:
    assert tokenizer_of_files({"tokenizer_config.json": b"{}", "config.json": b"{}"}, "x") is None


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000])
def test_a_tokenizer_file_that_is_no_json_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        of_files({"tokenizer.json": data})
    assert caught.value.message.startswith("hf://org/m: tokenizer.json: ")
