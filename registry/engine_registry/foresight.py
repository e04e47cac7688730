"""What a rollback will look at, noted by the moves before it and read at once.

In a bucket every read waits for an answer, and a rollback learns step by step what to read: the
channel's state names an engine, its manifest names files. Earlier moves read the same. So each
leaves a note below `cache/` of what the manifests of a channel's engines name, the next rollback
reads the note beside the pointer, and begins to read everything before it has seen any of it.

Nothing rests on the note. Every answer is read from the store by the act itself and judged by the
code that would otherwise have asked for it later; what the manifest names and the note does not is
asked for then. A note that is absent, old, damaged or forged costs time and nothing else.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_registry import layout
from engine_registry.ahead import ahead
from engine_registry.begun import Begun
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, seal, unseal
from engine_registry.errors import EngineCIError
from engine_registry.events import ROLLBACK_WINDOW
from engine_registry.heads import pointed
from engine_registry.manifest import MAX_FILES
from engine_registry.refs import ReleaseRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_registry.drafts import StoredEngine
    from engine_registry.events import ChannelState, Live
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry
    from engine_registry.store import Stores

# Engines are immutable, so what is noted of one stays true; those beyond are asked for in turn.
_ENGINES = 4


class Part(Value):
    """One blob that a manifest names."""

    digest: Digest
    size: Annotated[int, Field(ge=0)]


class EngineNote(Value):
    """What is looked at to know that an engine is whole.

    Attributes:
        records: build keys of its records.
    """

    engine: Digest
    parts: Annotated[tuple[Part, ...], Field(max_length=MAX_FILES + 1)]
    records: Annotated[tuple[Digest, ...], Field(max_length=MAX_FILES)]


class Note(Document):
    """What is known of the engines of one channel."""

    engines: Annotated[tuple[EngineNote, ...], Field(max_length=ROLLBACK_WINDOW)] = ()

    def on(self, engine: Digest) -> EngineNote | None:
        """What is noted of an engine."""
        return next((note for note in self.engines if note.engine == engine), None)


def after_move(before: Note, state: ChannelState, engine: StoredEngine) -> Note:
    """The note to leave for the state after a move that found `engine` whole.

    It keeps what is known of that engine and of those that were live last, in order.
    """
    seen = EngineNote(
        engine=engine.digest,
        parts=tuple(
            Part(digest=part.digest, size=part.size)
            for part in (engine.manifest.config, *engine.manifest.layers)
        ),
        records=tuple(record.build_key for record in engine.records[:MAX_FILES]),
    )
    known = {note.engine: note for note in (*before.engines, seen)}
    order = dict.fromkeys([engine.digest, *(entry.live.engine for entry in state.history)])
    return Note(engines=tuple(known[digest] for digest in order if digest in known)[:_ENGINES])


class Notes:
    """The notes of one registry; none where no store is far away. Nothing here ever fails."""

    def __init__(self, stores: Stores) -> None:
        self._pointers = stores.pointers
        self._is_far = stores.is_far
        # Version and content of each as last read here: where to swap without reading it once more.
        self._seen: dict[ChannelRef, tuple[str | None, Note]] = {}

    def read(self, ref: ChannelRef) -> Note:
        """What is noted of a channel's engines; empty if nothing can be read."""
        if not self._is_far:
            return Note()
        note, version = Note(), None
        with suppress(EngineCIError):
            name = layout.note(ref)
            value = self._pointers.read(name)
            if value is not None:
                version = value.version
                note = unseal(value.data, Note, name)[0]
        self._seen[ref] = version, note
        return note

    def leave(self, ref: ChannelRef, state: ChannelState, engine: StoredEngine) -> None:
        """Note what `engine` consists of, for whoever takes the channel back from `state`.

        Of several who do so at the same time, one does.
        """
        if not self._is_far:
            return
        if ref not in self._seen:
            self.read(ref)
        version, before = self._seen.pop(ref)
        note = after_move(before, state, engine)
        if note != before:
            with suppress(EngineCIError):
                self._pointers.swap(layout.note(ref), version, seal(note))


@contextmanager
def foreseen(
    registry: Registry, ref: ChannelRef, likely: Callable[[ChannelState], Live | None]
) -> Iterator[Registry]:
    """The registry for one act on a channel, with reads begun where they are far.

    Args:
        registry: where the channel is.
        ref: the channel.
        likely: the release that the act will look at, if the pointer tells the truth.
    """
    if not registry.stores.is_far:
        yield registry
        return
    with ahead(registry.stores) as ask:
        begun = Begun(registry.stores, ask)
        over = registry.over(begun.stores)
        pointer = begun.pointer(layout.head(ref))
        note = ask(lambda: over.notes.read(ref))
        with suppress(EngineCIError):  # whoever reads the pointer will hear of it
            state = pointed(pointer(), ref)
            live = likely(state) if state is not None else None
            if live is not None:
                _begin(begun, ref, live, note().on(live.engine))
        yield over


def _begin(begun: Begun, ref: ChannelRef, live: Live, note: EngineNote | None) -> None:
    """Begin to read a release and everything that makes its engine whole."""
    begun.document(layout.release(ReleaseRef(ref.product, live.number)))
    begun.blob(live.engine)
    begun.children(layout.records(live.engine))
    if note is None:
        return
    for key in note.records:
        begun.document(layout.record(live.engine, key))
    for part in dict.fromkeys(note.parts):
        begun.look(part.digest, part.size)
