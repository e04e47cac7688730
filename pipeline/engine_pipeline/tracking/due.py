"""Deliveries as values: what is due, what was tried, how a destination stands. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.tracking.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One delivery that is to be made; `attempts` were made before."""

    seq: int
    fact: Fact
    attempts: int
    delivery: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One attempt."""

    at: datetime
    destination: str
    delivery: str
    fact: str
    attempt: int
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a destination stands: what waits, since which error, until when it is left alone."""

    waiting: int
    rests_until: datetime | None
    error: str | None
