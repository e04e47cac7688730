"""What a load run brings home: each request with its plan and its answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.server_metrics import ServerCounts

if TYPE_CHECKING:
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.schedule import Level, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One request.

    Attributes:
        scheduled_at: when it was due, in the clock of the reply's times.
    """

    planned: Planned
    scheduled_at: float
    reply: Reply

    @property
    def failure(self) -> str | None:
        """What makes it count as failed, apart from its length; None if it is good."""
        if self.reply.error is not None:
            return self.reply.error.name
        return None if self.reply.event_at else "no-tokens"

    @property
    def ttft_open_ms(self) -> float | None:
        """Time from when it was due to its first token: what a user of an open load waits."""
        if not self.reply.event_at:
            return None
        return (self.reply.event_at[0] - self.scheduled_at) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRun:
    """One step of a workload on one server.

    Attributes:
        ignores_eos: answers ran to their full length when warming up, so another one is a failure.
        timed: in the order in which the answers ended.
        counts: what the server says of it.
    """

    level: Level
    ignores_eos: bool
    timed: tuple[Timed, ...]
    counts: ServerCounts = field(default_factory=ServerCounts)

    def failure(self, timed: Timed) -> str | None:
        """As `Timed.failure`, and an answer of another length than asked for, where that counts."""
        wrong = self.ignores_eos and timed.reply.completion_tokens != timed.planned.output_tokens
        return timed.failure or ("wrong-length" if wrong else None)
