"""`backend.options` of a `trtllm-checkpoint` spec: settings that are promoted with it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

_Value = bool | int | float | str
_GUIDED = ("xgrammar", "llguidance", "none")
KNOWN = (
    "block-reuse",
    "chunked-prefill",
    "guided-decoding",
    "iteration-stats",
    "kv-cache-fraction",
    "moe-expert-parallel",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """Options by their meaning.

    Attributes:
        block_reuse: prompts that begin alike share KV cache blocks.
        chunked_prefill: long prompts are read in pieces between other sequences' tokens.
        guided_decoding: what keeps answers within a grammar; None does without.
        iteration_stats: the server's `/metrics` says something.
        kv_cache_fraction: of the memory left after weights and activations.
        moe_expert: ranks that experts are spread over; None leaves it to the server.
    """

    block_reuse: bool = True
    chunked_prefill: bool = False
    guided_decoding: str | None = "xgrammar"
    iteration_stats: bool = True
    kv_cache_fraction: float = 0.9
    moe_expert: int | None = None


def read_options(options: Mapping[str, _Value]) -> CheckpointOptions:
    """Options of a spec.

    Raises:
        InvalidInput: `unknown-value` or `option-value-invalid`.
    """
    for name in options:
        if name not in KNOWN:
            raise InvalidInput(
                f"backend.options: unknown {name!r}; known for trtllm-checkpoint: "
                + ", ".join(KNOWN),
                hint="use one of these, or remove it",
                reference="unknown-value",
            )
    guided = options.get("guided-decoding", "xgrammar")
    if guided not in _GUIDED:
        raise _invalid("guided-decoding", guided, ", ".join(_GUIDED))
    fraction = options.get("kv-cache-fraction", 0.9)
    if isinstance(fraction, bool | str) or not 0 < fraction <= 1:
        raise _invalid("kv-cache-fraction", fraction, "a number above 0 and up to 1")
    expert = options.get("moe-expert-parallel")
    if expert is not None and (isinstance(expert, bool) or not isinstance(expert, int)):
        raise _invalid("moe-expert-parallel", expert, "a whole number of at least 1")
    if expert is not None and expert < 1:
        raise _invalid("moe-expert-parallel", expert, "a whole number of at least 1")
    return CheckpointOptions(
        block_reuse=_switch(options, "block-reuse", default=True),
        chunked_prefill=_switch(options, "chunked-prefill", default=False),
        guided_decoding=None if guided == "none" else str(guided),
        iteration_stats=_switch(options, "iteration-stats", default=True),
        kv_cache_fraction=float(fraction),
        moe_expert=expert,
    )


def _switch(options: Mapping[str, _Value], name: str, *, default: bool) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise _invalid(name, value, "true, false")
    return value


def _invalid(name: str, value: _Value, want: str) -> InvalidInput:
    return InvalidInput(
        f"backend.options.{name} is {value!r}; it takes: {want}",
        hint=f"correct `{name}` in backend.options",
        reference="option-value-invalid",
    )
