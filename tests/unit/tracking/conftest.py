"""A registry in memory with a story, an outbox, and destinations that remember."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, QualityBars
from engine_pipeline.gates.report import (
    Device,
    Finding,
    LoadResult,
    Measured,
    PerformanceResult,
    Report,
    Sample,
    TagScore,
    listing,
)
from engine_pipeline.tracking.deliver import Pace, Run, run_once
from engine_pipeline.tracking.facts import Fact
from engine_pipeline.tracking.feed import Feed
from engine_pipeline.tracking.outbox import Outbox
from engine_pipeline.tracking.port import NotSent, Sent
from engine_registry import manifest
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.registry import Registry
from engine_registry.testing.samples import SAMPLE_AT, SAMPLE_PRODUCT

POLICY = GatePolicy(suite="core", quality=QualityBars(min_score=0.9))


@dataclass
class Clock:
    """A clock that stands until it is set forward."""

    now: datetime = SAMPLE_AT

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **span: float) -> None:
        self.now += timedelta(**span)


@dataclass
class Notebook:
    """A destination that remembers what it was given and answers as it is told."""

    name: str = "notebook"
    max_age: timedelta | None = timedelta(days=3)
    kinds: frozenset[str] | None = None
    got: list[tuple[str, str, int]] = field(default_factory=list)
    answers: dict[str, list[NotSent]] = field(default_factory=dict)
    always: NotSent | None = None

    def wants(self, fact: Fact) -> bool:
        return self.kinds is None or fact.kind in self.kinds

    def deliver(self, fact: Fact, *, delivery: str, attempt: int) -> Sent | NotSent:
        self.got.append((fact.id, delivery, attempt))
        left = self.answers.get(fact.id)
        if left:
            return left.pop(0)
        return self.always or Sent(detail="taken")

    @property
    def told(self) -> list[str]:
        return [fact for fact, _, _ in self.got]


@dataclass
class World:
    """A registry, an outbox and time."""

    registry: Registry
    outbox: Outbox
    clock: Clock
    slept: list[float] = field(default_factory=list)

    def feed(self, **options: object) -> Feed:
        return Feed(self.registry, self.outbox, self.clock, **options)

    def run(self, *destinations: Notebook, insist: bool = False, **options: object) -> Run:
        pace = Pace(clock=self.clock, sleep=self.slept.append, chance=lambda: 1.0)
        feed = self.feed(**options)
        return run_once(feed, self.outbox, destinations, pace, insist=insist)

    def kinds(self, **options: object) -> list[str]:
        """What is new, and take it in."""
        feed = self.feed(**options)
        facts = list(feed.facts())
        self.outbox.take_in(facts, feed.positions)
        return [str(fact.kind) for fact in facts]

    def report(
        self,
        engine: Digest,
        outcome: Outcome = Outcome.PASSED,
        reason: str = "",
        **changes: Any,
    ) -> Digest:
        at = self.clock()
        measured = Measured(unit="ms", n=60, needed=59, value=12.5, low=11, high=None, largest=14)
        performance = PerformanceResult(
            requests=60,
            concurrency=2,
            warmup_requests=2,
            output_tokens=8,
            ignores_eos=True,
            failed={},
            unreached=0,
            metrics={"ttft_p95_ms": measured},
            prompt_tokens_mean=8.0,
            cached_share=None,
            tokens_per_event=1.0,
            window_s=3.0,
            samples=tuple(
                Sample(
                    ttft_ms=12.5 if lost is None else None,
                    tpot_ms=2.0,
                    e2e_ms=30.0,
                    prompt_tokens=8,
                    completion_tokens=8,
                    cached_tokens=None,
                    error=lost,
                )
                for lost in (None, None, None, "timeout")
            ),
        )
        report = Report(
            engine=engine,
            gate="core",
            suite_name="core",
            suite=Digest.of(b"suite"),
            policy=POLICY,
            policy_digest=POLICY.digest,
            device=Device(sku=SAMPLE_PRODUCT.target, host_class="test", cpu_model="test", cores=1),
            started_at=at - timedelta(seconds=30),
            finished_at=at,
            outcome=outcome,
            load=LoadResult(outcome=Outcome.PASSED, reason="loaded", load_s=1.5),
            findings=(Finding(name="score", outcome=outcome, reason=reason or "as the test says"),),
            tags=(TagScore(tag="json", cases=2, passed=1, score=0.5),),
            performance=performance,
        ).model_copy(update=changes)
        return self.registry.engines.attach(
            engine,
            manifest.REPORT_ARTIFACT,
            [
                ("report.json", canonical_json(report), "application/json"),
                ("report.md", b"# the report\n", "text/markdown"),
            ],
            listing(report),
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = Clock(SAMPLE_AT.astimezone(UTC))
    registry = Registry(memory_stores(clock), clock)
    registry.stores.blobs.add_bytes(b"founds it")
    outbox = Outbox(tmp_path / "state" / "notify.sqlite", registry="0123")
    yield World(registry, outbox, clock)
    outbox.close()
