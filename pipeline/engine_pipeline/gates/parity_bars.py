"""How far a candidate's greedy answers may be from a parent's. Pure.

Written in `channels.yaml` under a gate as `parity:`; part of the gate's policy and its digest.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from engine_registry.documents import Value

Share = Annotated[float, Field(ge=0.0, le=1.0)]
ParentName = Annotated[str, Field(min_length=1, max_length=300)]


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class ParityBars(Value):
    """Whom a candidate is compared with, on what, and how far apart the two may be.

    Every bar is optional, and at least one is given. Defaults and what they were taken from are in
    docs/parity.md.

    Attributes:
        parent: a build spec (`MODEL/TARGET-PRECISION`), a channel, a release or an engine; or a
            list of them, each compared with on its own.
        prompts: how many cases of the suite are asked, one tag after another; None: all.
        forced_tokens: so many tokens of each of the parent's answers are given to the candidate,
            one by one, to see what it would have said next; 0 compares up to the divergence only.
        near_tie_logprob: the parent's preference for its own token over the candidate's below which
            a divergence is a tie-break, in nats: 0.5 is odds of 1.65 to 1.
        min_prefix_agreement: least mean share of the parent's answer that the candidate's repeats.
        max_real_divergences: most prompts whose answers part at what is no near-tie, as a share.
        min_top1_agreement: least share of positions where both hold the same token most likely.
        max_kl: most divergence of the candidate's distribution from the parent's, mean, in nats.
        max_tag_drop: most that the share of passed cases may fall, over all and for any tag.
    """

    parent: Annotated[tuple[ParentName, ...], Field(min_length=1), BeforeValidator(_as_list)]
    prompts: Annotated[int | None, Field(ge=1, le=2000)] = None
    forced_tokens: Annotated[int, Field(ge=0, le=1024)] = 32
    near_tie_logprob: Annotated[float, Field(ge=0.0, le=5.0)] = 0.5
    min_prefix_agreement: Annotated[float | None, Field(gt=0.0, le=1.0)] = None
    max_real_divergences: Annotated[float | None, Field(ge=0.0, lt=1.0)] = None
    min_top1_agreement: Annotated[float | None, Field(gt=0.0, le=1.0)] = None
    max_kl: Annotated[float | None, Field(gt=0.0, allow_inf_nan=False)] = None
    max_tag_drop: Annotated[float | None, Field(ge=0.0, lt=1.0)] = None

    @model_validator(mode="after")
    def _bars_something(self) -> Self:
        bars = (
            self.min_prefix_agreement,
            self.max_real_divergences,
            self.min_top1_agreement,
            self.max_kl,
            self.max_tag_drop,
        )
        if all(bar is None for bar in bars):
            msg = (
                "compares without a bar: give max_real_divergences, max_kl, min_top1_agreement, "
                "min_prefix_agreement or max_tag_drop, or leave parity out"
            )
            raise ValueError(msg)
        if len(set(self.parent)) != len(self.parent):
            msg = "names a parent twice"
            raise ValueError(msg)
        return self
