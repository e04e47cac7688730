"""Reads what is new in a registry, for those who tell others of it.

Nothing is written to the registry, and no act has to leave a note: records, reports, releases and
events are durable and named already. What was read before is known by its id; positions only spare
the reading. A document that cannot be read hides nothing else: it is a problem that is reported.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from engine_pipeline.gates.report import GATE
from engine_pipeline.promote.evidence import read_report
from engine_pipeline.tracking import facts
from engine_pipeline.tracking.facts import Fact, Kind
from engine_registry import layout, manifest
from engine_registry.documents import unseal
from engine_registry.errors import EngineCIError, NotFound, Unavailable
from engine_registry.events import Event
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.touched import Act

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_pipeline.promote.policy import Policies
    from engine_registry.digest import Digest
    from engine_registry.record import Record, ReferrerLink
    from engine_registry.registry import Registry

# A note that an engine was touched comes before what it tells of, by a clock that is not ours.
_OVERLAP = timedelta(hours=1)
# Notes are kept for 60 days; whoever was away for longer than this reads every engine.
_NOTES_SUFFICE = timedelta(days=30)
# A minute is told of when nobody is expected to add to it.
_MINUTE_IS_OVER = timedelta(minutes=2)
_TOUCHED = "touched"


class Memory(Protocol):
    """What was read before."""

    def knows(self, fact_id: str) -> bool:
        """Whether this fact was taken in."""
        ...

    def position(self, stream: str) -> str | None:
        """Where reading a stream ended."""
        ...


class Feed:
    """One pass over a registry.

    Args:
        registry: what to read.
        memory: what was read before.
        clock: gives the aware UTC time.
        policies: rules of the channels, to know where approvals are needed; None: do not ask.
        rescan: look at every engine, whatever was read before.

    Attributes:
        positions: where each stream was read up to; complete when `facts` is exhausted.
        problems: what could not be read, one line each.
    """

    def __init__(
        self,
        registry: Registry,
        memory: Memory,
        clock: Callable[[], datetime],
        *,
        policies: Policies | None = None,
        rescan: bool = False,
    ) -> None:
        self._registry = registry
        self._memory = memory
        self._clock = clock
        self._policies = policies
        self._rescan = rescan
        self.positions: dict[str, str] = {}
        self.problems: list[str] = []

    def facts(self) -> Iterator[Fact]:
        """Every fact that is not known yet.

        Raises:
            NotFound: there is no registry.
            Unavailable: it cannot be reached.
        """
        for fact in self._all():
            if not self._memory.knows(fact.id):
                yield fact
            yield from self._approvals_after(fact)

    def _all(self) -> Iterator[Fact]:
        self._registry.info()
        yield from self._engines()
        for product in self._products():
            yield from self._releases(product)
        for ref in self._registry.channels.channels():
            yield from self._events(ref)

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Note what cannot be read and go on; a registry that cannot be reached ends the pass."""
        try:
            yield
        except Unavailable:
            raise
        except EngineCIError as error:
            self.problems.append(f"{what}: {error.message}")
        except (KeyError, ValueError) as error:
            self.problems.append(f"{what}: not readable: {error}")

    def _engines(self) -> Iterator[Fact]:
        now = self._clock()
        at = self._memory.position(_TOUCHED)
        since = datetime.fromisoformat(at) if at else None
        reads_all = self._rescan or since is None or now - since > _NOTES_SUFFICE
        first = (since or now) - _OVERLAP
        newest, removed = first, defaultdict(list)
        engines: dict[Digest, None] = {}
        for touch in self._registry.touches.since(first):
            newest = max(newest, touch.minute)
            if touch.act is Act.REMOVED:
                removed[touch.minute].append(touch.engine)
            else:
                engines[touch.engine] = None
        for engine in self._registry.engines.all_engines() if reads_all else engines:
            with self._reporting(f"engine {engine.short}"):
                yield from self._of_engine(engine)
        for minute, gone in sorted(removed.items()):
            if now - minute >= _MINUTE_IS_OVER:
                yield facts.of_collection(minute, gone)
        # A clock ahead of ours must not make us skip what slower clocks write next.
        self.positions[_TOUCHED] = min(newest + _OVERLAP if reads_all else newest, now).isoformat()

    def _of_engine(self, engine: Digest) -> Iterator[Fact]:
        records = None
        for child in self._registry.stores.documents.children(layout.records(engine)):
            key = layout.digest_of(child)
            if key is None or self._memory.knows(facts.build_id(engine, key)):
                continue
            records = self._registry.engines.records(engine)
            yield from (facts.of_record(r) for r in records if r.build_key == key)
        for link in self._registry.engines.referrers(engine, manifest.REPORT_ARTIFACT):
            known = self._memory.knows(facts.report_id(engine, link.manifest))
            if known or GATE not in link.annotations:
                continue
            records = records or self._registry.engines.records(engine)
            if records:
                yield facts.of_report(records[-1], link, self._reasons(records[-1], link))

    def _reasons(self, record: Record, link: ReferrerLink) -> tuple[str, ...]:
        with self._reporting(f"report {link.manifest.short} of engine {record.engine.short}"):
            return read_report(self._registry, record.engine, link.manifest).reasons
        return ()

    def _products(self) -> Iterator[ProductRef]:
        """Every product that has a folder of releases, even if all of them were removed."""
        children = self._registry.stores.documents.children
        for model in list(children(layout.RELEASES)):
            for target in list(children(f"{layout.RELEASES}/{model.removesuffix('/')}")):
                with self._reporting(f"releases of {model}{target}"):
                    yield ProductRef.parse(f"{model}{target.removesuffix('/')}")

    def _releases(self, product: ProductRef) -> Iterator[Fact]:
        releases = self._registry.releases
        for child in self._registry.stores.documents.children(layout.releases(product)):
            is_retired = child.endswith(layout.RETIRED)
            number = layout.number_of(child.replace(layout.RETIRED, ".json"))
            if number is None:
                continue
            ref = ReleaseRef(product, number)
            with self._reporting(f"release {ref}"):
                if is_retired:
                    gone = None if self._memory.knows(f"retired/{ref}") else releases.retired(ref)
                    if gone is not None:
                        yield facts.of_retired(gone)
                elif not self._memory.knows(facts.release_id(str(ref))):
                    yield facts.of_release(releases.release(ref))

    def _events(self, ref: ChannelRef) -> Iterator[Fact]:
        """The events since the last one that was read; all of them if the log is another one."""
        stream = f"channel/{ref}"
        number, _, last = (self._memory.position(stream) or "0:").partition(":")
        read = int(number)
        with self._reporting(f"channel {ref}"):
            head = self._registry.channels.recorded_state(ref).number
            if head < read or (read and str(self._event(ref, read)[1]) != last):
                read = 0
            for at in range(read + 1, head + 1):
                event, digest = self._event(ref, at)
                yield from facts.of_event(ref, event, digest)
                self.positions[stream] = f"{at}:{digest}"

    def _event(self, ref: ChannelRef, number: int) -> tuple[Event, Digest]:
        name = layout.event(ref, number)
        return unseal(self._registry.stores.documents.read(name), Event, name)

    def _approvals_after(self, cause: Fact) -> Iterator[Fact]:
        """Where the release of a fact now waits for people: the channels that come next."""
        if self._policies is None or cause.kind not in {Kind.RELEASED, Kind.PROMOTED}:
            return
        product = ProductRef.parse(cause.product or "")
        try:
            channels = self._policies.for_product(product).channels
        except NotFound:
            return  # no policy, no channel that it could go to
        came_from = ChannelRef.parse(cause.channel).channel if cause.channel else None
        for name, policy in channels.items():
            ref = ChannelRef(product, name)
            if not policy.approvals or policy.upstream != came_from:
                continue
            if self._memory.knows(f"approval/{ref}/{cause.release}"):
                continue
            number = int((cause.release or ":0").rpartition(":")[2])
            state = self._registry.channels.state(ref)
            given = len({a.actor.name for a in state.approvals if a.number == number})
            went_live = any(e.live.number == number and e.since >= cause.at for e in state.history)
            if given < policy.approvals and not went_live:
                yield facts.approval_needed(ref, cause, policy.approvals, given)
