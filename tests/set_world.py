"""Three products of one model, each with releases that were live, and desks to move them from."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, QualityBars
from engine_pipeline.gates.report import Device, Finding, LoadResult, Report, listing
from engine_pipeline.promote.findings import Wanted
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.sets import SetOutcome, Wish, promote_set
from engine_registry import manifest
from engine_registry.backends.memory import Files, memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import Unavailable
from engine_registry.events import ChannelState, Prepared, Promoted
from engine_registry.record import Actor, Platform, Release
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.registry import Registry
from engine_registry.sets import Fate, SetDecision
from engine_registry.store import Stores
from engine_registry.testing.samples import SAMPLE_AT, sample_draft, sample_release
from engine_registry.verify import verify

PRODUCTS = tuple(ProductRef("tiny", sku) for sku in ("a100", "h100", "l40s"))
CHANNELS = tuple(ChannelRef(product, "prod") for product in PRODUCTS)
GATE = GatePolicy(suite="core", quality=QualityBars(min_score=0.9))
SUITE = Digest.of(b"suite")
POLICY = ChannelPolicy(gates=("core",))
WANTED = {"core": Wanted(policy=GATE.digest, suite=SUITE)}
ALICE, BOB, CAROL = (Actor(name=name, proved_by="os-user") for name in ("alice", "bob", "carol"))


class Clock:
    """Never gives one moment twice; `passes` lets time go by."""

    def __init__(self) -> None:
        self.now = SAMPLE_AT

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def passes(self, span: timedelta) -> None:
        self.now += span


class SetWorld:
    """A registry in memory in which release 2 of each product is live, after 1; 3 and 4 are next.

    Args:
        releases: how many each product has.
    """

    def __init__(self, releases: int = 4) -> None:
        self.clock = Clock()
        self.files: Files = {}
        registry = self.registry()
        for product, channel in zip(PRODUCTS, CHANNELS, strict=True):
            for number in range(1, releases + 1):
                release = released(registry, product, f"{product.target} {number}")
                if number <= 2:
                    wish = Wish(release=release, channel=channel, policy=POLICY, wanted=WANTED)
                    promote_one(self.desk(ALICE), wish)
        self._saved = (dict(self.files), self.clock.now)

    def reload(self) -> None:
        """Everything as it was at first."""
        files, self.clock.now = self._saved
        self.files.clear()
        self.files.update(files)

    def registry(self, wrap: Callable[[Stores], Stores] = lambda stores: stores) -> Registry:
        """The registry as a new process sees it."""
        return Registry(wrap(memory_stores(self.clock, self.files)), self.clock)

    def desk(self, actor: Actor, wrap: Callable[[Stores], Stores] = lambda stores: stores) -> Desk:
        return Desk(registry=self.registry(wrap), actor=actor, clock=self.clock)

    def release(self, product: ProductRef, number: int) -> Release:
        return self.registry().releases.release(ReleaseRef(product, number))

    def wish(self, product: ProductRef, number: int) -> Wish:
        return Wish(
            release=self.release(product, number),
            channel=ChannelRef(product, "prod"),
            policy=POLICY,
            wanted=WANTED,
        )

    def wishes(self, number: int = 3, products: tuple[ProductRef, ...] = PRODUCTS) -> list[Wish]:
        return [self.wish(product, number) for product in products]

    def move_all(
        self,
        actor: Actor = ALICE,
        wrap: Callable[[Stores], Stores] = lambda stores: stores,
        number: int = 3,
        products: tuple[ProductRef, ...] = PRODUCTS,
    ) -> SetOutcome:
        """Promote release `number` of these products together."""
        wishes = self.wishes(number, products)
        return promote_set(self.desk(actor, wrap), wishes, reason="the new model")

    def live(self) -> list[int]:
        """What a reader sees live on each channel."""
        states = [self.registry().channels.state(ref) for ref in CHANNELS]
        return [state.live.number for state in states if state.live]

    def was_ever_live(self, number: int) -> list[ChannelRef]:
        return [
            ref
            for ref in CHANNELS
            if number in {e.live.number for e in self.registry().channels.state(ref).history}
        ]


def promote_one(desk: Desk, wish: Wish):
    return promote(desk, wish.release, wish.channel, policy=wish.policy, wanted=wish.wanted)


def released(
    registry: Registry,
    product: ProductRef,
    name: str,
    outcome: Outcome | None = Outcome.PASSED,
    sku: str | None = None,
) -> Release:
    """A release whose engine has a report of this outcome; None: none."""
    with tempfile.TemporaryDirectory() as folder:
        draft = sample_draft(Path(folder), name, {"m.gguf": name.encode()}, product=product)
        facts = replace(draft.facts, platform=Platform(sku=sku or product.target, runtime={}))
        engine = registry.engines.put_engine(replace(draft, facts=facts))
    if outcome is not None:
        report = Report(
            engine=engine.digest,
            gate="core",
            suite_name="core",
            suite=SUITE,
            policy=GATE,
            policy_digest=GATE.digest,
            device=Device(sku=product.target, host_class="test", cpu_model="test", cores=1),
            started_at=SAMPLE_AT,
            finished_at=SAMPLE_AT,
            outcome=outcome,
            load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
            findings=(Finding(name="score", outcome=outcome, reason="as the test says"),),
        )
        registry.engines.attach(
            engine.digest,
            manifest.REPORT_ARTIFACT,
            [("report.json", canonical_json(report), "application/json")],
            listing(report),
        )
    return sample_release(registry, engine, product=product)


class Watched:
    """A port that tells of each operation before it happens, by name, and after it did."""

    def __init__(
        self, inner: object, before: Callable[[str], None], after: Callable[[str], None]
    ) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def __getattr__(self, method: str):
        real = getattr(self._inner, method)

        def told(*arguments, **options):
            self._before(method)
            answer = real(*arguments, **options)
            self._after(method)
            return answer

        return told


def watched(
    before: Callable[[str], None] = lambda _: None, after: Callable[[str], None] = lambda _: None
) -> Callable[[Stores], Stores]:
    """Stores whose documents and pointers tell of each operation."""

    def wrap(stores: Stores) -> Stores:
        return replace(
            stores,
            documents=Watched(stores.documents, before, after),
            pointers=Watched(stores.pointers, before, after),
        )

    return wrap


WRITES = frozenset({"create", "swap"})


class In:
    """Does something once, within operation number `at` of a process.

    Args:
        at: which.
        do: what.
        counts: the operations that count; default: all.

    Attributes:
        seen: how many operations there were.
    """

    def __init__(
        self, at: int, do: Callable[[], object], counts: frozenset[str] | None = None
    ) -> None:
        self.seen = 0
        self._at = at
        self._do = do
        self._counts = counts

    def __call__(self, method: str) -> None:
        if self._counts is not None and method not in self._counts:
            return
        self.seen += 1
        if self.seen == self._at:
            self._do()


class Deaf:
    """Loses the reply to write number `at`, and of all later ones if it does not get better."""

    def __init__(self, at: int, *, recovers: bool) -> None:
        self.writes = 0
        self._at = at
        self._recovers = recovers

    def __call__(self, method: str) -> None:
        if method not in WRITES:
            return
        self.writes += 1
        if self.writes == self._at or (self.writes > self._at and not self._recovers):
            raise Unavailable("no reply from the store", hint="run the same command again")


def decisions(registry: Registry) -> list[SetDecision]:
    names = registry.stores.documents.children("sets")
    found = [registry.sets.on(name.removesuffix(".json")) for name in names]
    return [decision for decision in found if decision is not None]


def check_sets(world: SetWorld) -> None:
    """All or none, from one instant on, whatever the logs say so far; and nothing is damaged."""
    registry = world.registry()
    assert verify(registry).mismatches == ()
    decided = {decision.set: decision for decision in decisions(registry)}
    for ref in CHANNELS:
        events = registry.channels.events(ref)
        state = registry.channels.state(ref)
        for event, _ in events:
            change = event.change
            if isinstance(change, Promoted) and change.set is not None:
                assert decided[change.set].fate is Fate.COMMITTED
            if not isinstance(change, Prepared):
                continue
            decision = decided.get(change.set)
            if decision is None or decision.fate is Fate.WITHDRAWN:
                went = [e for e, _ in events if getattr(e.change, "set", "") == change.set]
                assert not any(isinstance(e.change, Promoted) for e in went)
                assert event.number not in {entry.event for entry in state.history}
    for decision in decided.values():
        for member in decision.members:
            assert_live_from(registry, member.channel, decision, member.event)


def assert_live_from(registry: Registry, name: str, decision: SetDecision, event: int) -> None:
    ref = ChannelRef.parse(name)
    member = next(m for m in decision.members if m.channel == name)
    at: ChannelState = registry.channels.at_time(ref, decision.at)
    before = registry.channels.at_time(ref, decision.at - timedelta(microseconds=1))
    assert at.live == member.to
    assert before.number == event
    assert before.history == registry.channels.at_time(ref, before.last_at).history
    assert before.live != member.to
