"""In which order a server is told to load and unload. Pure.

Each model has one version on disk: the deployment's generation. While a model loads, the server
goes on with the version it has; only when the new one is ready is the old one let go. Between two
models the ensemble would mix generations, so where the tokenizer changes, what clients call is
taken off first: no answer is better than one in the wrong tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_pipeline.targets.triton.engine_models import BLS, ENGINE_MODELS, ENTRY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Every model that this target ever loads; a server's others are not touched.
MANAGED = ENGINE_MODELS
_ENTRIES = (ENTRY, BLS)
# The order of unloading: what clients call first, then what it needs.
_OFF = (*_ENTRIES, *(model for model in MANAGED if model not in _ENTRIES))


class Verb(StrEnum):
    """What a server is told."""

    LOAD = "load"
    UNLOAD = "unload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One thing a server is told to do with one model."""

    verb: Verb
    model: str


def plan_calls(
    ready: Mapping[str, frozenset[int]],
    models: Sequence[str],
    generation: int,
    *,
    entries_off: bool,
    replace: bool,
) -> tuple[Call, ...]:
    """What brings the server to exactly this generation of these models.

    Args:
        ready: versions of each model that are ready now.
        models: what shall be ready, in the order of loading.
        generation: in which version.
        entries_off: take off what clients call before anything changes.
        replace: unload every model before it is loaded: there is no memory for both.
    """
    wanted = frozenset({generation})
    stale = [m for m in _OFF if ready.get(m) and (m not in models or ready[m] != wanted)]
    if replace:
        first, last = stale, []
    else:
        first = [m for m in stale if m in models and m in _ENTRIES] if entries_off else []
        # What the new engine has no use for serves until the new one is there.
        last = [m for m in stale if m not in models]
    return (
        *(Call(verb=Verb.UNLOAD, model=model) for model in first),
        *(Call(verb=Verb.LOAD, model=model) for model in models if ready.get(model) != wanted),
        *(Call(verb=Verb.UNLOAD, model=model) for model in last),
    )
