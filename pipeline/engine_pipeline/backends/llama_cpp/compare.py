"""Where a GGUF engine is not what its lock asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.recipes import (
    RECIPES,
    Fallback,
    Recipe,
    fallback_hint,
    recipes_of,
)
from engine_pipeline.backends.port import Mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import PrecisionSpec

_REBUILD = "run `enginectl lock` and `enginectl build` again"


def recipe_for(precision: PrecisionSpec) -> Recipe:
    """The recipe a spec means; `check` has made sure that there is one."""
    return RECIPES[precision.recipe or recipes_of(precision.weights)[0]]


def differences(lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
    """Every fact that differs, with both sides; empty if lock and engine agree."""
    return tuple([*_types(lock, facts), *_sizes(lock, facts), *_tokenizer(lock, facts)])


def _types(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    recipe = recipe_for(lock.spec.precision)
    found = facts.details.get("recipe")
    if found != recipe.name:
        yield Mismatch(
            what="recipe",
            wanted=recipe.name,
            found=found or f"file type {facts.details.get('file_type')}",
            hint=_REBUILD,
        )
        return
    fell_back = [
        Fallback(
            wanted=item["wanted"],
            given=item["given"],
            count=item["count"],
            rows=tuple(item["rows"]),
        )
        for item in facts.details.get("fallbacks", ())
    ]
    for item in fell_back:
        if item.given.lower() not in lock.spec.precision.allow_fallback:
            yield Mismatch(
                what="tensor types",
                wanted=f"{item.wanted} for {item.count} matrices",
                found=str(item),
                hint=fallback_hint(recipe, item.given),
            )
    if not fell_back and not facts.tensor_types.get(recipe.weights):
        types = ", ".join(f"{count} {kind}" for kind, count in sorted(facts.tensor_types.items()))
        yield Mismatch(
            what="tensor types", wanted=f"matrices of {recipe.weights}", found=types, hint=_REBUILD
        )


def _sizes(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    wanted = lock.spec.limits.max_sequence_tokens
    if facts.context_tokens is None or facts.context_tokens < wanted:
        yield Mismatch(
            what="context",
            wanted=f"at least {wanted} tokens (limits.max_sequence_tokens)",
            found=f"{facts.context_tokens} tokens" if facts.context_tokens else "not stated",
            hint="lower `limits.max_sequence_tokens` to what the model was made for",
        )


def _tokenizer(lock: BuildLock, facts: EngineFacts) -> Iterator[Mismatch]:
    wanted = lock.tokenizer
    # A checkpoint's tokenizer files and GGUF metadata give digests that cannot be compared.
    comparable = any(item.path.endswith(".gguf") for item in lock.source.files)
    if facts.tokenizer is None or (comparable and facts.tokenizer != wanted.digest):
        yield Mismatch(
            what="tokenizer",
            wanted=str(wanted.digest),
            found=str(facts.tokenizer) if facts.tokenizer else "none",
            hint=_REBUILD,
        )
    if facts.chat_template != wanted.chat_template:
        yield Mismatch(
            what="chat template",
            wanted=str(wanted.chat_template or "none"),
            found=str(facts.chat_template or "none"),
            hint=_REBUILD,
        )
