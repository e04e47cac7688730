"""The contract of the trash port; see `conformance` for how an adapter is held to it."""

# ruff: noqa: D102 the names of the tests are sentences

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.errors import NotFound
from engine_registry.store import Depth, Stores

_RACERS = 8
AT_ONCE = timedelta(0)
_A_DAY = timedelta(days=1)
_NAME = "records/aa/engine/key.json"
_DATA = b"engine bytes " * 100
_BLOB = layout.blob(Digest.of(_DATA))


class TrashContract:
    """What `Trash` promises."""

    @pytest.fixture
    def stores(self) -> Stores:
        """A fresh registry."""
        raise pytest.UsageError("define the fixture `stores` in the subclass")

    @pytest.fixture
    def held(self, stores: Stores) -> Stores:
        """A registry with a document and a blob."""
        stores.documents.create(_NAME, b"one")
        stores.blobs.add_bytes(_DATA)
        return stores

    def test_a_discarded_document_is_out_of_sight_and_still_readable_in_the_trash(
        self, held: Stores
    ) -> None:
        assert held.trash.discard(_NAME, AT_ONCE)
        assert not held.documents.exists(_NAME)
        with pytest.raises(NotFound):
            held.documents.read(_NAME)
        assert list(held.documents.children("records/aa")) == []
        assert held.documents.read(layout.trash(_NAME)) == b"one"
        assert list(held.documents.children(layout.trash("records/aa/engine"))) == ["key.json"]

    def test_a_discarded_blob_is_out_of_sight_and_still_readable_in_the_trash(
        self, held: Stores
    ) -> None:
        assert held.trash.discard(_BLOB, AT_ONCE)
        with pytest.raises(NotFound):
            held.blobs.open(Digest.of(_DATA))
        assert held.documents.read(layout.trash(_BLOB)) == _DATA

    def test_what_was_discarded_is_not_in_the_inventory(self, held: Stores) -> None:
        held.trash.discard(_NAME, AT_ONCE)
        held.trash.discard(_BLOB, AT_ONCE)
        names = {file.name for file in held.inventory.files()}
        assert not {_NAME, _BLOB, layout.trash(_NAME), layout.trash(_BLOB)} & names

    def test_discarding_twice_is_a_no_op(self, held: Stores) -> None:
        assert held.trash.discard(_NAME, AT_ONCE)
        assert not held.trash.discard(_NAME, AT_ONCE)
        assert held.documents.read(layout.trash(_NAME)) == b"one"

    def test_what_is_younger_than_asked_is_not_discarded(self, held: Stores) -> None:
        assert not held.trash.discard(_NAME, _A_DAY)
        assert held.documents.read(_NAME) == b"one"

    @pytest.mark.parametrize("name", [_NAME, _BLOB])
    def test_what_was_restored_is_as_it_was(self, held: Stores, name: str) -> None:
        held.trash.discard(name, AT_ONCE)
        assert held.trash.restore(name)
        assert held.documents.read(_NAME) == b"one"
        held.blobs.check(Digest.of(_DATA), len(_DATA), Depth.UNCHANGED)
        held.blobs.check(Digest.of(_DATA), len(_DATA), Depth.FULL)
        assert not held.documents.exists(layout.trash(name))

    def test_restoring_what_was_never_discarded_is_a_no_op(self, held: Stores) -> None:
        assert not held.trash.restore(_NAME)
        assert not held.trash.restore("records/aa/engine/other.json")
        assert held.documents.read(_NAME) == b"one"

    def test_what_was_written_again_meanwhile_is_not_overwritten_by_restoring(
        self, held: Stores
    ) -> None:
        held.trash.discard(_NAME, AT_ONCE)
        assert held.documents.create(_NAME, b"two")
        assert not held.trash.restore(_NAME)
        assert held.documents.read(_NAME) == b"two"
        assert held.documents.read(layout.trash(_NAME)) == b"one"

    def test_discarding_again_replaces_what_was_discarded_before(self, held: Stores) -> None:
        held.trash.discard(_NAME, AT_ONCE)
        held.documents.create(_NAME, b"two")
        assert held.trash.discard(_NAME, AT_ONCE)
        assert held.documents.read(layout.trash(_NAME)) == b"two"

    def test_adding_a_discarded_blob_stores_it_again(self, held: Stores) -> None:
        held.trash.discard(_BLOB, AT_ONCE)
        held.blobs.add_bytes(_DATA)
        held.blobs.check(Digest.of(_DATA), len(_DATA), Depth.FULL)

    def test_what_was_purged_is_gone_and_purging_twice_is_a_no_op(self, held: Stores) -> None:
        held.trash.discard(_NAME, AT_ONCE)
        assert held.trash.purge(_NAME, AT_ONCE)
        assert not held.trash.purge(_NAME, AT_ONCE)
        assert not held.trash.restore(_NAME)
        assert not held.documents.exists(layout.trash(_NAME))

    def test_nothing_is_purged_before_its_time_or_before_it_was_discarded(
        self, held: Stores
    ) -> None:
        assert not held.trash.purge(_NAME, AT_ONCE)
        held.trash.discard(_NAME, AT_ONCE)
        assert not held.trash.purge(_NAME, _A_DAY)
        assert held.trash.restore(_NAME)

    def test_every_file_has_an_age_and_a_size_in_the_trash_too(self, held: Stores) -> None:
        held.trash.discard(_BLOB, AT_ONCE)
        files = {file.name: file for file in held.trash.aged()}
        assert files[_NAME].size_bytes == 3
        assert files[layout.trash(_BLOB)].size_bytes == len(_DATA)
        assert all(AT_ONCE <= file.age < _A_DAY for file in files.values())
        listed = {file.name for file in held.inventory.files()}
        assert {name for name in files if not name.startswith("trash/")} == listed

    def test_of_many_collectors_one_discards_one_restores_and_one_purges(
        self, held: Stores
    ) -> None:
        def all_at_once(act: str) -> int:
            one = getattr(held.trash, act)
            arguments = (_BLOB,) if act == "restore" else (_BLOB, AT_ONCE)
            with ThreadPoolExecutor(_RACERS) as pool:
                return sum(pool.map(lambda _: one(*arguments), range(_RACERS)))

        assert all_at_once("discard") == 1
        assert all_at_once("restore") >= 1  # a file system may take two steps: both see it done
        held.blobs.check(Digest.of(_DATA), len(_DATA), Depth.FULL)
        assert all_at_once("discard") == 1
        assert all_at_once("purge") == 1

    def test_writers_and_collectors_of_one_blob_never_leave_it_torn(self, stores: Stores) -> None:
        def write(_: int) -> None:
            stores.blobs.add_bytes(_DATA)

        def collect(_: int) -> None:
            stores.trash.discard(_BLOB, AT_ONCE)
            stores.trash.restore(_BLOB)
            stores.trash.discard(_BLOB, AT_ONCE)
            stores.trash.purge(_BLOB, AT_ONCE)

        with ThreadPoolExecutor(_RACERS) as pool:
            acts = [pool.submit(act, n) for n in range(40) for act in (write, collect)]
            for act in acts:
                act.result()
        stores.blobs.add_bytes(_DATA)
        stores.blobs.check(Digest.of(_DATA), len(_DATA), Depth.FULL)

    def test_writers_and_collectors_of_one_document_never_fail(self, stores: Stores) -> None:
        def write(_: int) -> None:
            stores.documents.create(_NAME, b"one")

        def collect(_: int) -> None:
            stores.trash.discard(_NAME, AT_ONCE)
            stores.trash.restore(_NAME)

        with ThreadPoolExecutor(_RACERS) as pool:
            acts = [pool.submit(act, n) for n in range(60) for act in (write, collect)]
            for act in acts:
                act.result()
        stores.documents.create(_NAME, b"one")
        assert stores.documents.read(_NAME) == b"one"
