"""Where facts go: the port that webhooks and the MLflow mirror implement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import timedelta

    from engine_pipeline.tracking.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A delivery that the other side took; `detail` is for the log, e.g. `204 in 31 ms`."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """A delivery that did not succeed; it stays due.

    Attributes:
        detail: what happened, without secrets.
        retry_after: how long the other side asked to be left alone.
        is_final: trying again at once cannot help: a setting is wrong.
        is_about_this: other deliveries to the same place may succeed.
    """

    detail: str
    retry_after: timedelta | None = None
    is_final: bool = False
    is_about_this: bool = False


class Destination(Protocol):
    """One place that facts are delivered to. Delivering the same fact twice must do no harm."""

    @property
    def name(self) -> str:
        """What it is called in the outbox and in messages."""
        ...

    @property
    def max_age(self) -> timedelta | None:
        """Older facts are no news here; None: everything counts, however late."""
        ...

    def wants(self, fact: Fact) -> bool:
        """Whether this fact is to be delivered."""
        ...

    def deliver(self, fact: Fact, *, delivery: str, attempt: int) -> Sent | NotSent:
        """Deliver one fact; the id is the same for every attempt. Never raises for the other side.

        Args:
            fact: what to tell.
            delivery: id by which the receiver knows a repetition.
            attempt: counts from 1 over all runs.
        """
        ...
