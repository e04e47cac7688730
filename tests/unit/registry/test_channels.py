"""Reading and appending to a channel's event log."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.channels import ChannelLog
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json, seal
from engine_registry.errors import ChannelMoved, IntegrityError, Unavailable
from engine_registry.events import ChannelState, Frozen, Held, HoldLifted, Live, Promoted
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import Registry
from engine_registry.store import PointerStore, PointerValue, Stores
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    sample_event,
)


def promotion(number: int) -> Promoted:
    one = Digest.of(b"%d" % number)
    return Promoted(to=Live(number=number, release=one, engine=one), policy=one)


def append(registry: Registry, decided_on: int, operation: str, **changed):
    arguments = {
        "change": promotion(1),
        "actor": SAMPLE_ACTOR,
        "at": registry.clock(),
    } | changed
    return registry.channels.append(
        SAMPLE_CHANNEL, decided_on=decided_on, operation=operation, **arguments
    )


def grow(registry: Registry, count: int) -> ChannelState:
    for number in range(1, count + 1):
        _, state = sample_event(registry, promotion(number))
    return state


def test_a_channel_without_events_is_at_number_0_with_nothing_live(registry: Registry) -> None:
    state = registry.channels.state(SAMPLE_CHANNEL)
    assert (state.number, state.live, state.name) == (0, None, "tiny/cpu/prod")
    assert registry.channels.channels() == []
    assert registry.channels.events(SAMPLE_CHANNEL) == []
    registry.channels.check_links(SAMPLE_CHANNEL)


def test_an_appended_event_is_what_the_state_says(registry: Registry) -> None:
    event, state = append(registry, 0, "op")
    assert (event.number, event.previous) == (1, None)
    assert registry.channels.state(SAMPLE_CHANNEL) == state
    assert state.live == promotion(1).to
    assert state.last == event.digest


def test_each_event_carries_the_digest_of_the_one_before(registry: Registry) -> None:
    grow(registry, 4)
    events = registry.channels.events(SAMPLE_CHANNEL)
    assert [event.number for event, _ in events] == [1, 2, 3, 4]
    assert [event.previous for event, _ in events] == [
        None,
        *(digest for _, digest in events[:-1]),
    ]


def test_a_move_decided_on_an_older_event_is_refused_with_the_state_now(
    registry: Registry,
) -> None:
    append(registry, 0, "first")
    before = list(registry.stores.inventory.files())
    with pytest.raises(ChannelMoved) as caught:
        append(registry, 0, "second", change=promotion(2))
    for part in ("tiny/cpu/prod", "event 0", "event 1", "alice", "release 1", "nothing was"):
        assert part in caught.value.message
    assert "enginectl status tiny/cpu/prod" in caught.value.hint
    assert list(registry.stores.inventory.files()) == before


def test_a_move_decided_on_an_event_that_does_not_exist_is_refused(registry: Registry) -> None:
    with pytest.raises(ChannelMoved, match="decided on event 5, but it is at event 0"):
        append(registry, 5, "op")


def test_repeating_an_operation_is_its_own_success(registry: Registry) -> None:
    event, state = append(registry, 0, "op")
    again, state_again = append(registry, 0, "op", at=SAMPLE_AT + timedelta(days=9))
    assert (again, state_again) == (event, state)
    assert registry.channels.state(SAMPLE_CHANNEL).number == 1


def test_repeating_an_operation_after_others_moved_on_gives_the_state_it_made(
    registry: Registry,
) -> None:
    event, state = append(registry, 0, "op")
    append(registry, 1, "later", change=promotion(2))
    assert append(registry, 0, "op") == (event, state)
    assert registry.channels.state(SAMPLE_CHANNEL).number == 2


def test_an_event_is_never_dated_before_the_one_before_it(registry: Registry) -> None:
    first, _ = append(registry, 0, "one", at=SAMPLE_AT + timedelta(hours=1))
    second, _ = append(registry, 1, "two", at=SAMPLE_AT)
    assert second.at == first.at


def test_the_state_is_found_without_the_pointer(registry: Registry) -> None:
    state = grow(registry, 3)
    lost = _without_pointer(registry)
    assert lost.state(SAMPLE_CHANNEL) == state


def test_the_state_catches_up_with_events_whose_pointer_write_was_lost(registry: Registry) -> None:
    grow(registry, 2)
    silent = ChannelLog(
        Stores(
            blobs=registry.stores.blobs,
            documents=registry.stores.documents,
            pointers=_Stuck(registry.stores.pointers),
            inventory=registry.stores.inventory,
        )
    )
    _, state = silent.append(
        SAMPLE_CHANNEL,
        decided_on=2,
        change=promotion(3),
        actor=SAMPLE_ACTOR,
        at=SAMPLE_AT,
        operation="silent",
    )
    pointed = registry.stores.pointers.read(layout.head(SAMPLE_CHANNEL))
    assert pointed is not None
    assert json.loads(pointed.data)["document"]["number"] == 2
    assert registry.channels.state(SAMPLE_CHANNEL) == state


def test_a_pointer_that_cannot_be_written_does_not_fail_the_move(registry: Registry) -> None:
    test_the_state_catches_up_with_events_whose_pointer_write_was_lost(registry)
    _, state = append(registry, 3, "next", change=promotion(4))
    pointed = registry.stores.pointers.read(layout.head(SAMPLE_CHANNEL))
    assert pointed is not None
    assert pointed.data == seal(state)


@pytest.mark.parametrize("damage", [b"", b"garbage", b'{"digest":"sha256:'])
def test_a_damaged_pointer_is_replayed_and_put_right_by_the_next_move(
    registry: Registry, damage: bytes
) -> None:
    state = grow(registry, 3)
    name = layout.head(SAMPLE_CHANNEL)
    held = registry.stores.pointers.read(name)
    assert held is not None
    registry.stores.pointers.swap(name, held.version, damage)
    assert registry.channels.state(SAMPLE_CHANNEL) == state
    _, after = append(registry, 3, "next")
    healed = registry.stores.pointers.read(name)
    assert healed is not None
    assert healed.data == seal(after)


def test_a_pointer_of_another_channel_is_not_believed(registry: Registry) -> None:
    state = grow(registry, 2)
    name = layout.head(SAMPLE_CHANNEL)
    held = registry.stores.pointers.read(name)
    assert held is not None
    other = state.model_copy(update={"channel": "staging"})
    registry.stores.pointers.swap(name, held.version, seal(other))
    assert registry.channels.state(SAMPLE_CHANNEL) == state


def test_a_pointer_that_contradicts_its_event_is_an_integrity_error(registry: Registry) -> None:
    state = grow(registry, 2)
    name = layout.head(SAMPLE_CHANNEL)
    held = registry.stores.pointers.read(name)
    assert held is not None
    forged = state.model_copy(update={"last": Digest.of(b"forged")})
    registry.stores.pointers.swap(name, held.version, seal(forged))
    with pytest.raises(IntegrityError, match="the pointer says event 2"):
        registry.channels.state(SAMPLE_CHANNEL)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_event_is_found_before_a_move_and_the_move_does_not_happen(
    on_disk: Registry, root: Path, number: int
) -> None:
    grow(on_disk, 3)
    event = root / layout.event(SAMPLE_CHANNEL, number)
    event.chmod(0o644)
    event.write_bytes(event.read_bytes().replace(b"alice", b"mallo"))
    for act in (
        lambda: on_disk.channels.check_links(SAMPLE_CHANNEL),
        lambda: append(on_disk, 3, "next"),
        lambda: on_disk.channels.events(SAMPLE_CHANNEL),
    ):
        with pytest.raises(IntegrityError):
            act()
    assert not (root / layout.event(SAMPLE_CHANNEL, 4)).exists()


def test_a_rewritten_event_with_a_right_envelope_breaks_the_chain(
    on_disk: Registry, root: Path
) -> None:
    grow(on_disk, 3)
    path = root / layout.event(SAMPLE_CHANNEL, 2)
    body = json.loads(path.read_bytes())["document"] | {"operation": "rewritten"}
    data = canonical_json(body)
    path.unlink()
    path.write_bytes(b'{"digest":"%s","document":%s}\n' % (str(Digest.of(data)).encode(), data))
    with pytest.raises(IntegrityError, match="event 3 says the one before is"):
        on_disk.channels.check_links(SAMPLE_CHANNEL)
    with pytest.raises(IntegrityError, match="event 3 says the one before is"):
        on_disk.channels.events(SAMPLE_CHANNEL)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_event_is_found_before_a_move(on_disk: Registry, root: Path, number: int) -> None:
    grow(on_disk, 3)
    (root / layout.event(SAMPLE_CHANNEL, number)).unlink()
    with pytest.raises(IntegrityError) as caught:
        on_disk.channels.check_links(SAMPLE_CHANNEL)
    assert f"event {number}" in caught.value.message or f"events {number}" in caught.value.message


def test_only_the_latest_links_are_read_before_a_move(on_disk: Registry, root: Path) -> None:
    grow(on_disk, 6)
    event = root / layout.event(SAMPLE_CHANNEL, 1)
    event.chmod(0o644)
    event.write_bytes(b"damaged")
    on_disk.channels.check_links(SAMPLE_CHANNEL, last=5)
    with pytest.raises(IntegrityError):
        on_disk.channels.check_links(SAMPLE_CHANNEL, last=6)


def test_the_state_at_a_time_is_that_after_the_last_event_by_then(registry: Registry) -> None:
    start = SAMPLE_AT + timedelta(days=1)
    for number in (1, 2, 3):
        append(
            registry,
            number - 1,
            f"op-{number}",
            change=promotion(number),
            at=start + timedelta(hours=number),
        )
    log = registry.channels
    assert log.at_time(SAMPLE_CHANNEL, start).live is None
    at_two = log.at_time(SAMPLE_CHANNEL, start + timedelta(hours=2))
    assert at_two.live == promotion(2).to
    just_before = log.at_time(SAMPLE_CHANNEL, start + timedelta(hours=3, seconds=-1))
    assert just_before == at_two
    assert log.at_time(SAMPLE_CHANNEL, start + timedelta(days=1)) == log.state(SAMPLE_CHANNEL)


def test_channels_are_listed_by_name_and_by_product(registry: Registry) -> None:
    other = ChannelRef(ProductRef("tiny", "gpu"), "prod")
    staging = ChannelRef(ProductRef("tiny", "cpu"), "staging")
    for ref in (other, SAMPLE_CHANNEL, staging):
        sample_event(registry, Held(reason="x"), ref=ref)
    assert registry.channels.channels() == [SAMPLE_CHANNEL, staging, other]
    assert registry.channels.channels(ProductRef("tiny", "gpu")) == [other]
    assert registry.channels.channels(ProductRef("none", "none")) == []


def test_channels_do_not_mix_their_events(registry: Registry) -> None:
    staging = ChannelRef(ProductRef("tiny", "cpu"), "staging")
    sample_event(registry, Held(reason="x"))
    sample_event(registry, Frozen(reason="y"), ref=staging)
    sample_event(registry, HoldLifted(reason="z"))
    assert registry.channels.state(SAMPLE_CHANNEL).number == 2
    assert registry.channels.state(staging).freeze is not None
    assert registry.channels.state(staging).number == 1


class _Stuck:
    """Pointers that read and never swap."""

    def __init__(self, inner: PointerStore) -> None:
        self._inner = inner

    def read(self, name: str) -> PointerValue | None:
        return self._inner.read(name)

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        raise Unavailable("no swap today", hint="try tomorrow")


class _Lost(_Stuck):
    def read(self, name: str) -> PointerValue | None:
        return None


def _without_pointer(registry: Registry) -> ChannelLog:
    stores = registry.stores
    return ChannelLog(
        Stores(
            blobs=stores.blobs,
            documents=stores.documents,
            pointers=_Lost(stores.pointers),
            inventory=stores.inventory,
        )
    )
