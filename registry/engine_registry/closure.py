"""Everything that belongs to an engine, as stored names in the order in which they were written.

Whatever follows an engine as a whole reads it here: removal goes through the names backwards, the
way back out of the trash forwards. What a manifest keeps is found conservatively: every digest that
its bytes mention, in fields that this program knows and in fields that it does not.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine_registry.store import Stores

_MENTION = re.compile(rb"sha256:([0-9a-f]{64})(?![0-9a-f])")
# Signatures of attestations of engines make three levels; more is no accident.
_MAX_DEPTH = 16


def mentions(data: bytes) -> list[Digest]:
    """Every SHA-256 digest that occurs in these bytes, in order, each once."""
    found = dict.fromkeys(_MENTION.findall(data))
    return [Digest(text.decode()) for text in found]


def names_of_engine(
    engine: Digest,
    *,
    records: Iterable[tuple[Digest, bytes]],
    referrers: Callable[[Digest], Iterable[Digest]],
    manifest: Callable[[Digest], bytes | None],
) -> Iterator[str]:
    """The names of an engine in the order of writing, some may come twice; as `parts_of_engine`."""
    found = parts_of_engine(engine, records=records, referrers=referrers, manifest=manifest)
    return map(name_of, found)


def name_of(part: Digest | str) -> str:
    """The stored name of one of `parts_of_engine`."""
    return layout.blob(part) if isinstance(part, Digest) else part


def parts_of_engine(
    engine: Digest,
    *,
    records: Iterable[tuple[Digest, bytes]],
    referrers: Callable[[Digest], Iterable[Digest]],
    manifest: Callable[[Digest], bytes | None],
) -> Iterator[Digest | str]:
    """Blobs and names of documents of an engine in the order of writing; some may come twice.

    Args:
        engine: its manifest digest.
        records: build key and stored bytes of each record.
        referrers: the manifests attached to a manifest.
        manifest: the checked bytes of a manifest; None if it is nowhere.
    """
    yield from _parts_below(engine, referrers, manifest, 0)
    held = list(records)
    for _, data in held:
        for digest in mentions(data):
            if digest != engine:
                yield digest
    for key, _ in held:
        yield layout.record(engine, key)
    for key, _ in held:
        yield layout.key(key, engine)


def _parts_below(
    subject: Digest,
    referrers: Callable[[Digest], Iterable[Digest]],
    manifest: Callable[[Digest], bytes | None],
    depth: int,
) -> Iterator[Digest | str]:
    yield from mentions(manifest(subject) or b"")
    yield subject
    if depth == _MAX_DEPTH:
        raise IntegrityError(
            f"manifest {subject}: attached to something attached, {depth} times over",
            hint="run `enginectl verify` to see what is attached to what",
            reference="referrers-too-deep",
        )
    for attached in referrers(subject):
        yield from _parts_below(attached, referrers, manifest, depth + 1)
        yield layout.referrer(subject, attached)


class Sight:
    """What is stored and what was discarded, seen as one; the stored one where there are both."""

    def __init__(self, stores: Stores) -> None:
        self._blobs = stores.blobs
        self._documents = stores.documents

    def read(self, name: str) -> bytes:
        """A document's bytes. Raises NotFound if it is in neither."""
        with suppress(NotFound):
            return self._documents.read(name)
        try:
            return self._documents.read(layout.trash(name))
        except NotFound:
            return self._documents.read(name)  # restored in between, or named in the refusal

    def manifest(self, digest: Digest) -> bytes | None:
        """A manifest's bytes; None if it is in neither.

        Raises:
            IntegrityError: the bytes do not have that digest.
        """
        data = self._blob(digest)
        if data is not None and Digest.of(data) != digest:
            raise IntegrityError(
                f"manifest {digest.short}: stored bytes have digest {Digest.of(data)}, "
                f"want {digest}",
                hint="run `enginectl verify` to list every damaged file",
                reference="manifest-damaged",
            )
        return data

    def children(self, folder: str) -> list[str]:
        """Names directly below a folder in either, sorted, each once."""
        found = set(self._documents.children(folder))
        found.update(self._documents.children(layout.trash(folder)))
        return sorted(found)

    def engine(self, engine: Digest) -> Iterator[str]:
        """The names of one engine in the order of writing; see `names_of_engine`."""
        folder = layout.records(engine)
        keys = [key for key in map(layout.digest_of, self.children(folder)) if key is not None]
        return names_of_engine(
            engine,
            records=[(key, self.read(layout.record(engine, key))) for key in keys],
            referrers=self.referrers,
            manifest=self.manifest,
        )

    def referrers(self, subject: Digest) -> list[Digest]:
        """The manifests attached to one, in order of digest."""
        found = map(layout.digest_of, self.children(layout.referrers(subject)))
        return [digest for digest in found if digest is not None]

    def _blob(self, digest: Digest) -> bytes | None:
        for _ in range(2):  # it may be on its way from the one to the other
            with suppress(NotFound), self._blobs.open(digest) as stream:
                return stream.read()
            with suppress(NotFound):
                return self._documents.read(layout.trash(layout.blob(digest)))
        return None
