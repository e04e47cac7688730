"""What is noted for a rollback, and reads that were begun before anybody asked for their answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine_registry import layout
from engine_registry.ahead import ahead
from engine_registry.backends.memory import Files, memory_stores
from engine_registry.begun import Begun
from engine_registry.digest import Digest
from engine_registry.documents import unseal
from engine_registry.errors import NotFound, Unavailable
from engine_registry.events import ROLLBACK_WINDOW, ChannelState
from engine_registry.foresight import Note, Notes, after_move, foreseen
from engine_registry.registry import Registry
from engine_registry.store import Depth, Stores
from engine_registry.testing.samples import (
    SAMPLE_CHANNEL,
    TickingClock,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)


class World:
    """A far registry in memory, and what is read there."""

    def __init__(self) -> None:
        self.files: Files = {}
        self.clock = TickingClock()
        self.stores: Stores = replace(memory_stores(self.clock, self.files), is_far=True)
        self.registry = Registry(self.stores, self.clock)

    def promoted(self, *names: str) -> ChannelState:
        for name in names:
            engine = sample_engine(self.registry, name)
            release = sample_release(self.registry, engine)
            sample_event(self.registry, sample_promotion(release))
        return self.registry.channels.state(SAMPLE_CHANNEL)

    def leave(self, state: ChannelState, place: int) -> None:
        engine = self.registry.engines.engine(state.history[place].live.engine)
        self.registry.notes.leave(SAMPLE_CHANNEL, state, engine)

    def note(self) -> Note:
        name = layout.note(SAMPLE_CHANNEL)
        return unseal(self.files[name], Note, name)[0]


@pytest.fixture
def world() -> World:
    return World()


def test_a_note_names_the_files_and_records_of_an_engine(world: World) -> None:
    state = world.promoted("one")
    world.leave(state, 0)
    engine = world.registry.engines.engine(state.history[0].live.engine)
    noted = world.note().on(engine.digest)
    assert noted is not None
    assert {part.digest for part in noted.parts} == {
        engine.manifest.config.digest,
        *(layer.digest for layer in engine.manifest.layers),
    }
    assert noted.records == tuple(record.build_key for record in engine.records)
    assert world.note().on(Digest.of(b"another")) is None


def test_a_note_keeps_what_is_known_of_the_engines_that_were_live_last(world: World) -> None:
    state = world.promoted("one", "two")
    for place in (1, 0):
        world.leave(state, place)
    assert [note.engine for note in world.note().engines] == [
        entry.live.engine for entry in state.history
    ]


def test_a_note_does_not_grow_with_the_log(world: World) -> None:
    state, note = world.promoted(*map(str, range(8))), Note()
    for entry in reversed(state.history):
        note = after_move(note, state, world.registry.engines.engine(entry.live.engine))
    assert len(note.engines) < len(state.history) < ROLLBACK_WINDOW
    assert note.engines[0].engine == state.history[0].live.engine


def test_the_same_note_is_not_written_again(world: World) -> None:
    state = world.promoted("one")
    world.leave(state, 0)
    before = world.stores.pointers.read(layout.note(SAMPLE_CHANNEL))
    refuses = replace(world.stores, pointers=_ReadOnly(world.stores))
    Notes(refuses).leave(
        SAMPLE_CHANNEL, state, world.registry.engines.engine(state.history[0].live.engine)
    )
    assert world.stores.pointers.read(layout.note(SAMPLE_CHANNEL)) == before


class _ReadOnly:
    def __init__(self, stores: Stores) -> None:
        self.read = stores.pointers.read

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        raise AssertionError(f"{name} is written")


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 200], ids=["empty", "JSON", "noise"])
def test_a_damaged_note_says_nothing_and_is_written_anew(world: World, data: bytes) -> None:
    state = world.promoted("one")
    world.files[layout.note(SAMPLE_CHANNEL)] = data
    assert world.registry.notes.read(SAMPLE_CHANNEL) == Note()
    world.leave(state, 0)
    assert len(world.note().engines) == 1


def test_a_store_that_refuses_notes_works_without(world: World) -> None:
    class Refuses(_ReadOnly):
        def swap(self, name: str, expected: str | None, data: bytes) -> str:
            raise Unavailable("denied", hint="none", reference="store-access-denied")

    state = world.promoted("one")
    engine = world.registry.engines.engine(state.history[0].live.engine)
    Notes(replace(world.stores, pointers=Refuses(world.stores))).leave(
        SAMPLE_CHANNEL, state, engine
    )
    assert layout.note(SAMPLE_CHANNEL) not in world.files


def test_nearby_nothing_is_noted(world: World) -> None:
    state = world.promoted("one")
    near = Registry(replace(world.stores, is_far=False), world.clock)
    engine = near.engines.engine(state.history[0].live.engine)
    near.notes.leave(SAMPLE_CHANNEL, state, engine)
    assert layout.note(SAMPLE_CHANNEL) not in world.files
    with foreseen(near, SAMPLE_CHANNEL, lambda _: None) as registry:
        assert registry is near


def at_once(act: Callable[[], object]) -> Callable[[], object]:
    """Begins a read and ends it: whatever happens next happens after it."""
    answer = act()
    return lambda: answer


def test_an_answer_that_was_begun_is_given_once(world: World) -> None:
    documents = world.stores.documents
    documents.create("one.json", b"1")
    begun = Begun(world.stores, at_once)
    begun.document("one.json")
    begun.children("records")
    begun.pointer("p.json")()
    world.files["one.json"] = b"2"
    world.stores.pointers.swap("p.json", None, b"later")
    world.files["records/x.json"] = b"x"
    assert begun.stores.documents.read("one.json") == b"1"
    assert begun.stores.documents.read("one.json") == b"2"
    assert begun.stores.pointers.read("p.json") is None
    assert begun.stores.pointers.read("p.json") is not None
    assert list(begun.stores.documents.children("records")) == []
    assert list(begun.stores.documents.children("records")) == ["x.json"]


def test_after_a_write_nothing_is_answered_from_before_it(world: World) -> None:
    blob = world.stores.blobs.add_bytes(b"weights")
    begun = Begun(world.stores, at_once)
    begun.look(blob.digest, blob.size_bytes)
    begun.blob(blob.digest)
    begun.stores.documents.create("event.json", b"commit")
    del world.files[layout.blob(blob.digest)]
    with pytest.raises(NotFound):
        begun.stores.blobs.check(blob.digest, blob.size_bytes, Depth.UNCHANGED)
    with pytest.raises(NotFound):
        begun.stores.blobs.open(blob.digest)


def test_what_nobody_asks_for_fails_without_a_word(world: World) -> None:
    blob = world.stores.blobs.add_bytes(b"weights")
    with ahead(world.stores) as ask:
        begun = Begun(world.stores, ask)
        begun.document("absent.json")
        begun.look(Digest.of(b"absent"), 3)
        begun.look(blob.digest, blob.size_bytes)
        begun.stores.blobs.check(blob.digest, blob.size_bytes, Depth.UNCHANGED)
        with pytest.raises(NotFound):
            begun.stores.blobs.check(Digest.of(b"absent"), 3, Depth.UNCHANGED)


def test_a_full_check_is_never_answered_by_a_look(world: World) -> None:
    blob = world.stores.blobs.add_bytes(b"weights")
    begun = Begun(world.stores, at_once)
    begun.look(blob.digest, blob.size_bytes)
    world.files.pop(layout.blob(blob.digest))
    with pytest.raises(NotFound):
        begun.stores.blobs.check(blob.digest, blob.size_bytes, Depth.FULL)


def test_a_guess_that_fails_is_no_failure_of_the_act(world: World) -> None:
    state = world.promoted("one")
    gone = live(world.registry.releases.releases(SAMPLE_CHANNEL.product)[0])
    wrong = gone.model_copy(update={"number": 99, "engine": Digest.of(b"none")})
    with foreseen(world.registry, SAMPLE_CHANNEL, lambda _: wrong) as registry:
        assert registry.channels.checked_state(SAMPLE_CHANNEL) == state
