"""Random histories of one product, acted out on a registry in memory and on the model side by side.

Each step is one person's command or the collector's run; some die at a random write and are looked
at as the next process finds them. The clock jumps both ways between steps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Device, Finding, LoadResult, Report, listing
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import approve, freeze, hold, lift_hold, thaw
from engine_registry import manifest
from engine_registry.backends.memory import Ages, Files, memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import ChannelMoved, EngineCIError, ExitCode, NotFound
from engine_registry.events import HoldLifted
from engine_registry.gc import Collector
from engine_registry.record import Actor, Platform, ReleaseContent
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.registry import Registry
from engine_registry.retention import Retention
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import SAMPLE_AT, sample_draft
from engine_registry.verify import verify
from tests.properties.registry_model import LIVE_KEPT, MAX_AGE, SOAK, Model, told
from tests.set_world import GATE, SUITE, WANTED

PRODUCT = ProductRef("tiny", "a100")
ENGINES, VARIANTS = 4, 3
ACTORS = [Actor(name=name, proved_by="os-user") for name in ("alice", "bob", "carol")]
POLICIES = {
    "staging": ChannelPolicy(gates=("core",), evidence_max_age=MAX_AGE),
    "prod": ChannelPolicy(
        gates=("core",), evidence_max_age=MAX_AGE, upstream="staging", soak=SOAK, approvals=1
    ),
}
RULES = Retention(
    live_per_channel=LIVE_KEPT,
    newest_releases=1,
    released_for=timedelta(0),
    unreleased_for=timedelta(0),
)
DAY = timedelta(days=1)
GRACE = timedelta(hours=1)
JUMPS = [*[timedelta(minutes=40)] * 4, *[timedelta(hours=5)] * 2, timedelta(days=1), 4 * DAY]


class World:
    """A registry in memory with engines that were built once, and how it was then."""

    def __init__(self, folder: Path) -> None:
        self.now = SAMPLE_AT
        self.passed_s = 0.0
        self.files: Files = {}
        self.ages = Ages(lambda: self.passed_s)
        self.drafts = []
        for number in range(ENGINES):
            draft = sample_draft(
                folder / str(number),
                f"e{number}",
                {"m": b"%d" % number, "t": b"shared"},
                product=PRODUCT,
            )
            facts = replace(draft.facts, platform=Platform(sku=PRODUCT.target, runtime={}))
            self.drafts.append(replace(draft, facts=facts))
        self.engines = [self.registry().engines.put_engine(draft) for draft in self.drafts]
        self._saved = dict(self.files)

    def clock(self) -> datetime:
        return self.now

    def reload(self) -> None:
        self.now = SAMPLE_AT
        self.files.clear()
        self.files.update(self._saved)
        for name in self.files:
            self.ages.start(name)

    def registry(self, plan: FaultPlan | None = None) -> Registry:
        """As a process that starts now sees it, and dies as planned."""
        stores = memory_stores(self.clock, self.files, self.ages)
        registry = Registry(stores if plan is None else faulty(stores, plan), self.clock)
        # Starting threads for three small blobs would take a third of the run.
        registry.engines._each = lambda act, items, _=1: [act(item) for item in items]
        return registry


class History:
    """One history: the registry and the model after the same steps.

    Attributes:
        counts: how often each kind of step was taken, refused, or died.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self._choice = random.Random(seed)
        self._model = Model()
        world.reload()
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.somebody_judges),
            (4, self.somebody_releases),
            (14, self.somebody_promotes),
            (7, self.somebody_approves),
            (4, self.somebody_rolls_back),
            (2, self.somebody_freezes_or_thaws),
            (4, self.somebody_holds_or_lifts),
            (3, self.somebody_decides_on_an_old_state),
            (2, self.a_reply_is_lost_and_the_act_repeated),
            (2, self.a_release_is_held_or_let_go),
            (2, self.an_engine_is_built),
            (2, self.garbage_is_collected),
            (6, self.the_clock_jumps),
        ]

    def run(self, steps: int) -> None:
        weights = [weight for weight, _ in self._steps]
        acts = [act for _, act in self._steps]
        for number in range(steps):
            act = self._choice.choices(acts, weights)[0]
            act()
            self.counts["steps"] += 1
            if number % 40 == 39:
                self.everything_agrees()
        self.everything_agrees()
        assert verify(self.world.registry()).mismatches == ()

    # What people do.

    def somebody_judges(self) -> None:
        index = self._choice.randrange(ENGINES)
        passed = self._choice.random() < 0.9
        now = self.world.now
        engine = self.world.engines[index].digest
        report = Report(
            engine=engine,
            gate="core",
            suite_name="core",
            suite=SUITE,
            policy=GATE,
            policy_digest=GATE.digest,
            device=Device(sku=PRODUCT.target, host_class="test", cpu_model="test", cores=1),
            started_at=now,
            finished_at=now,
            outcome=(outcome := Outcome.PASSED if passed else Outcome.FAILED),
            load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
            findings=(Finding(name="score", outcome=outcome, reason="as the test says"),),
        )

        def act(registry: Registry) -> None:
            registry.engines.attach(
                engine,
                manifest.REPORT_ARTIFACT,
                [("report.json", canonical_json(report), "application/json")],
                listing(report),
            )

        if any(at == now for at, _ in self._model.reports.get(index, [])):
            return  # two verdicts of one moment: which is the newest is nobody's to say
        if not self.world.registry().engines.is_recorded(engine):
            self._refused(act, NotFound, "judged")
            return
        self._does("judged", act)
        self._sync_reports(index)

    def somebody_releases(self) -> None:
        index, variant = self._choice.randrange(ENGINES), self._choice.randrange(VARIANTS)
        engine = self.world.engines[index]
        content = ReleaseContent(
            engine=engine.digest,
            record=engine.records[0].digest,
            kind="llama-cpp",
            precision="int8",
            platform=engine.records[0].platform,
            tokenizer=Digest.of(b"tokenizer"),
            serving_image="embedded:xllamacpp==1.0",
            runtime_config={"slots": variant},
        )
        numbers: list[int] = []

        def act(registry: Registry) -> None:
            actor = self._choice.choice(ACTORS)
            made = registry.releases.create_release(PRODUCT, content, actor, self.world.now)
            numbers.append(made.number)

        if not self.world.registry().engines.is_recorded(engine.digest):
            self._refused(act, NotFound, "released")
            return
        before = dict(self._model.releases)
        self._does("released", act, insist=True)
        known = {what: number for number, what in before.items()}
        expected = known.get((index, variant), self._model.newest + 1)
        assert set(numbers) == {expected}
        self._model.releases[expected] = (index, variant)
        self._model.newest = max(self._model.newest, expected)

    def somebody_promotes(self) -> None:
        name, actor = self._choice.choice(list(POLICIES)), self._choice.choice(ACTORS)
        number = self._some_release()
        if number is None:
            return
        channel = self._model.channel(name)

        def act(registry: Registry) -> None:
            release = registry.releases.release(ReleaseRef(PRODUCT, number))
            policy = POLICIES[name]
            promote(self._desk(registry, actor), release, _ref(name), policy=policy, wanted=WANTED)

        if number not in self._model.releases:
            self._refused(act, NotFound, "promoted")
        elif channel.live == number:
            self._does("promoted", act)
            self._agrees(name)
        elif broken := self._model.why_not(name, number, actor.name, self.world.now):
            self._refused(act, EngineCIError, "promoted", broken)
        else:
            self._moves(name, "promoted", act, lambda c: c.goes_live(number, self.world.now))

    def somebody_approves(self) -> None:
        actor, number = self._choice.choice(ACTORS), self._some_release()
        if number not in self._model.releases:
            return

        def act(registry: Registry) -> None:
            release = registry.releases.release(ReleaseRef(PRODUCT, number))
            approve(
                self._desk(registry, actor),
                release,
                _ref("prod"),
                policy=POLICIES["prod"],
                reason=None,
            )

        def happens(channel) -> None:
            channel.happens(self.world.now)
            channel.approved.add((number, actor.name))

        prod = self._model.prod
        if number == prod.live or (number, actor.name) in prod.approved:
            self._does("approved", act)
        else:
            self._moves("prod", "approved", act, happens)

    def somebody_rolls_back(self) -> None:
        name, actor = self._choice.choice(list(POLICIES)), self._choice.choice(ACTORS)
        channel = self._model.channel(name)
        to = self._some_release() if self._choice.random() < 0.4 else None
        goal = channel.back_to() if to is None else to

        def act(registry: Registry) -> None:
            roll_back(self._desk(registry, actor), _ref(name), reason="bad", to=to)

        ever = {number for number, _ in channel.was_live}
        if goal is None or goal not in self._model.releases:
            self._refused(act, NotFound, "rolled back")
        elif goal not in ever or goal == channel.live or goal in channel.bad:
            self._refused(act, EngineCIError, "rolled back")
        else:  # no freeze, no hold and no rule of the policy stops it
            self._moves(name, "rolled back", act, lambda c: c.goes_back(goal, self.world.now))

    def somebody_freezes_or_thaws(self) -> None:
        name, actor = self._choice.choice(list(POLICIES)), self._choice.choice(ACTORS)
        if self._choice.random() < 0.7:

            def act(registry: Registry) -> None:
                thaw(self._desk(registry, actor), _ref(name), reason="over")

            if self._model.channel(name).freeze is None:
                self._does("thawed", act)
            else:
                self._moves(name, "thawed", act, _thaws(self.world.now))
            return
        lasts = self._choice.choice([None, timedelta(minutes=10), timedelta(days=2)])
        until = None if lasts is None else self.world.now + lasts

        def stop(registry: Registry) -> None:
            freeze(self._desk(registry, actor), _ref(name), reason="stop", until=until)

        self._moves(name, "frozen", stop, _freezes(self.world.now, until))

    def somebody_holds_or_lifts(self) -> None:
        name, actor = self._choice.choice(list(POLICIES)), self._choice.choice(ACTORS)
        lifts = self._choice.random() < 0.9

        def act(registry: Registry) -> None:
            say = lift_hold if lifts else hold
            say(self._desk(registry, actor), _ref(name), reason="look")

        if lifts and not self._model.channel(name).is_held:
            self._does("lifted", act)
        else:
            self._moves(name, "held", act, _holds(self.world.now, not lifts))

    def somebody_decides_on_an_old_state(self) -> None:
        name = self._choice.choice(list(POLICIES))
        events = self._model.channel(name).events
        stale = self._choice.choice([events - 1, events + 1, 0])
        if stale == events or stale < 0:
            return
        self._refused(
            lambda registry: self._append(registry, name, stale, "late"), ChannelMoved, "late"
        )

    def a_reply_is_lost_and_the_act_repeated(self) -> None:
        name = self._choice.choice(list(POLICIES))
        events = self._model.channel(name).events
        operation = f"operation {name} {events}"

        def act(registry: Registry) -> None:
            self._append(registry, name, events, operation)

        self._moves(name, "said", act, _holds(self.world.now, False))
        if self._model.channel(name).events > events:
            assert self._append(self.world.registry(), name, events, operation) == events + 1
            self._agrees(name)

    def a_release_is_held_or_let_go(self) -> None:
        number = self._some_release()
        if number not in self._model.releases:
            return
        release = self.world.registry().releases.release(ReleaseRef(PRODUCT, number))
        keep = self._choice.random() < 0.4
        say = {"reason": "look", "actor": ACTORS[0], "at": self.world.now}

        def act(registry: Registry) -> None:
            (registry.holds.hold if keep else registry.holds.lift)(release, **say)

        self._does("release held", act, insist=True)
        (self._model.held.add if keep else self._model.held.discard)(number)
        assert set(self.world.registry().holds.held(PRODUCT)) == self._model.held

    def an_engine_is_built(self) -> None:
        index = self._choice.randrange(ENGINES)
        draft = self.world.drafts[index]
        self._does("built", lambda registry: registry.engines.put_engine(draft), insist=True)
        engine = self.world.engines[index].digest
        self.world.engines[index] = self.world.registry().engines.check_engine(engine)
        self._sync_reports(index)

    def garbage_is_collected(self) -> None:
        purges = self._choice.random() < 0.4

        def act(registry: Registry) -> None:
            collector = Collector(registry, lambda _: RULES, actor=ACTORS[0], grace=GRACE)
            collector.purge() if purges else collector.discard()

        self._does("purged" if purges else "collected", act)
        registry = self.world.registry()
        there = {release.number for release in registry.releases.releases(PRODUCT)}
        lost = self._model.protected() - there
        assert not lost, f"collected although something keeps them: {lost}"
        ever = self._model.releases | self._model.removed
        assert there <= set(ever)
        self.counts["releases removed"] += len(set(self._model.releases) - there)
        # By a clock that went back, what was removed for its age is young again.
        self.counts["releases put back"] += len(there - set(self._model.releases))
        self._model.releases = {n: what for n, what in ever.items() if n in there}
        self._model.removed = {n: what for n, what in ever.items() if n not in there}
        for number in there:
            engine = self.world.engines[self._model.releases[number][0]].digest
            registry.engines.check_engine(engine)
        for index in range(ENGINES):
            self._sync_reports(index)

    def the_clock_jumps(self) -> None:
        span = self._choice.choice(JUMPS)
        self.world.passed_s += span.total_seconds()  # the store's own clock only goes on
        self.world.now += span if self._choice.random() < 0.75 else -span
        self.counts["jumps of the clock"] += 1

    # How it is done and looked at.

    def _does(self, what: str, act: Callable[[Registry], object], *, insist: bool = False) -> None:
        """Act; once in a while die at a write first, and with `insist` act again."""
        if self._dies(what, act) and not insist:
            return
        act(self.world.registry())
        self.counts[what] += 1

    def _moves(self, name: str, what: str, act, happens) -> None:
        """Act on a channel; if the process dies, it has happened or it has not."""
        channel = self._model.channel(name)
        if self._dies(what, act):
            number = self.world.registry().channels.state(_ref(name)).number
            assert number in (channel.events, channel.events + 1)
            if number == channel.events:
                self._agrees(name)
                return
        else:
            act(self.world.registry())
            self.counts[what] += 1
        happens(channel)
        self._agrees(name)

    def _dies(self, what: str, act: Callable[[Registry], object]) -> bool:
        if self._choice.random() > 0.12:
            return False
        mode = self._choice.choice([CrashMode.BEFORE, CrashMode.AFTER])
        plan = FaultPlan(self._choice.randint(1, 6), mode)
        try:
            act(self.world.registry(plan))
        except SimulatedCrash:
            self.counts["deaths"] += 1
        # One that ended before its time did all it had to.
        return True

    def _refused(
        self, act, kind: type[EngineCIError], what: str, broken: set[str] = frozenset()
    ) -> None:
        before = deepcopy((self._model.staging, self._model.prod))
        with pytest.raises(kind) as caught:
            act(self.world.registry())
        self.counts["refusals"] += 1
        assert caught.value.exit_code != ExitCode.BUG, what
        unsaid = [rule for rule in broken if _SAYS[rule] not in caught.value.message]
        assert not unsaid, f"{what}: broken and not said: {unsaid}: {caught.value.message}"
        assert before == (self._model.staging, self._model.prod)
        for name in POLICIES:
            self._agrees(name)

    def _agrees(self, name: str) -> None:
        found = told(self.world.registry().channels.state(_ref(name)))
        wanted = self._model.channel(name)
        assert replace(found, was_live=[]) == replace(wanted, was_live=[])
        assert found.was_live == wanted.was_live[: len(found.was_live)]
        assert len(found.was_live) == len(wanted.window)

    def everything_agrees(self) -> None:
        registry = self.world.registry()
        for name in POLICIES:
            self._agrees(name)
            ref = _ref(name)
            assert registry.channels.replay(ref) == registry.channels.state(ref)
            times = [event.at for event, _ in registry.channels.events(ref)]
            assert times == sorted(times)
        numbers = [release.number for release in registry.releases.releases(PRODUCT)]
        assert numbers == sorted(self._model.releases)

    def _append(self, registry: Registry, name: str, decided_on: int, operation: str) -> int:
        event, _ = registry.channels.append(
            _ref(name),
            decided_on=decided_on,
            change=HoldLifted(reason="over"),
            actor=ACTORS[0],
            at=self.world.now,
            operation=operation,
        )
        return event.number

    def _sync_reports(self, index: int) -> None:
        engine = self.world.engines[index].digest
        registry = self.world.registry()
        found = []
        if registry.engines.is_recorded(engine):
            for link in registry.engines.referrers(engine, manifest.REPORT_ARTIFACT):
                report = registry.engines.read_attachment(link.manifest)["report.json"]
                read = Report.model_validate_json(report)
                found.append((read.finished_at, read.outcome is Outcome.PASSED))
        self._model.reports[index] = found

    def _some_release(self) -> int | None:
        """Mostly one that is there, sometimes one that was removed or never was."""
        if not self._model.newest:
            return None
        if self._choice.random() < 0.9 and self._model.releases:
            return self._choice.choice(sorted(self._model.releases))
        return self._choice.randint(1, self._model.newest + 1)

    def _desk(self, registry: Registry, actor: Actor) -> Desk:
        return Desk(registry=registry, actor=actor, clock=self.world.clock)


# What a refusal says of each rule that it names.
_SAYS = {
    "freeze": "is frozen",
    "hold": "is on hold",
    "bad": "is marked bad",
    "gates": "gate core",
    "upstream": "/staging",
    "approvals": "of 1 approvals",
}


def _ref(name: str) -> ChannelRef:
    return ChannelRef(PRODUCT, name)


def _thaws(now: datetime):
    def happens(channel) -> None:
        channel.happens(now)
        channel.freeze = None

    return happens


def _freezes(now: datetime, until: datetime | None):
    def happens(channel) -> None:
        channel.happens(now)
        channel.freeze = (until,)

    return happens


def _holds(now: datetime, held: bool):
    def happens(channel) -> None:
        channel.happens(now)
        channel.is_held = held

    return happens
