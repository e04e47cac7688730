"""The contract of the store ports as test classes that every adapter passes.

A test module subclasses each and defines the fixture `stores`, which gives the ports of a fresh,
founded registry:

    class TestMyBlobs(BlobStoreContract):
        @pytest.fixture
        def stores(self, tmp_path): ...
"""

# ruff: noqa: D102 the names of the tests are sentences

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from engine_registry.digest import Digest
from engine_registry.errors import Conflict, DocumentConflict, InvalidInput, NotFound
from engine_registry.store import Depth, Ownership, Stores

if TYPE_CHECKING:
    from pathlib import Path

_RACERS = 8
_BOTH = pytest.mark.parametrize("ownership", list(Ownership))
_SIZES = pytest.mark.parametrize("size", [0, 1, 4095, 4096, 1 << 20, (16 << 20) + 4097])


def _file(folder: Path, data: bytes, name: str = "source.bin") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


class BlobStoreContract:
    """What `BlobStore` promises."""

    @pytest.fixture
    def stores(self) -> Stores:
        """A fresh registry."""
        raise pytest.UsageError("define the fixture `stores` in the subclass")

    @_BOTH
    @_SIZES
    def test_a_file_is_stored_under_the_digest_of_its_bytes(
        self, stores: Stores, tmp_path: Path, ownership: Ownership, size: int
    ) -> None:
        data = os.urandom(size)
        stored = stores.blobs.add_file(_file(tmp_path, data), ownership)
        assert stored.digest == Digest.of(data)
        assert stored.size_bytes == size
        with stores.blobs.open(stored.digest) as stream:
            assert stream.read() == data

    @_BOTH
    def test_adding_a_file_leaves_it_in_place(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        path = _file(tmp_path, b"engine")
        stores.blobs.add_file(path, ownership)
        assert path.read_bytes() == b"engine"

    def test_a_kept_file_may_change_afterwards_without_harm(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        path = _file(tmp_path, b"engine")
        stored = stores.blobs.add_file(path, Ownership.KEPT)
        path.write_bytes(b"scribble")
        stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)

    @_BOTH
    def test_adding_the_same_file_again_changes_nothing(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        path = _file(tmp_path, b"engine")
        first = stores.blobs.add_file(path, ownership)
        before = list(stores.inventory.files())
        assert stores.blobs.add_file(path, ownership) == first
        assert stores.blobs.add_bytes(b"engine") == first
        assert list(stores.inventory.files()) == before

    @_BOTH
    def test_a_symbolic_link_is_refused(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        link = tmp_path / "link"
        link.symlink_to(_file(tmp_path, b"engine"))
        with pytest.raises(InvalidInput, match="link"):
            stores.blobs.add_file(link, ownership)

    @_BOTH
    def test_a_named_pipe_is_refused_at_once(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InvalidInput, match="pipe"):
            stores.blobs.add_file(tmp_path / "pipe", ownership)

    @_BOTH
    def test_a_missing_file_is_refused(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        with pytest.raises(InvalidInput, match="nowhere"):
            stores.blobs.add_file(tmp_path / "nowhere", ownership)

    @_BOTH
    def test_many_threads_may_add_the_same_file(
        self, stores: Stores, tmp_path: Path, ownership: Ownership
    ) -> None:
        path = _file(tmp_path, os.urandom(1 << 20))
        with ThreadPoolExecutor(_RACERS) as pool:
            stored = set(pool.map(lambda _: stores.blobs.add_file(path, ownership), range(_RACERS)))
        assert len(stored) == 1
        one = stored.pop()
        stores.blobs.check(one.digest, one.size_bytes, Depth.FULL)

    @pytest.mark.parametrize("depth", list(Depth))
    def test_a_missing_blob_is_not_found(self, stores: Stores, depth: Depth) -> None:
        absent = Digest.of(b"absent")
        with pytest.raises(NotFound) as caught:
            stores.blobs.check(absent, 6, depth)
        assert caught.value.name == "blob-missing"
        with pytest.raises(NotFound):
            stores.blobs.open(absent)

    def test_materialising_gives_a_read_only_file_with_the_bytes(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        stored = stores.blobs.add_bytes(b"engine")
        path = tmp_path / "out.bin"
        stores.blobs.materialise(stored.digest, path)
        assert path.read_bytes() == b"engine"
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
        stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)

    def test_materialising_over_something_is_refused(self, stores: Stores, tmp_path: Path) -> None:
        stored = stores.blobs.add_bytes(b"engine")
        path = _file(tmp_path, b"mine")
        with pytest.raises(InvalidInput):
            stores.blobs.materialise(stored.digest, path)
        assert path.read_bytes() == b"mine"

    def test_materialising_a_missing_blob_leaves_nothing(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        with pytest.raises(NotFound):
            stores.blobs.materialise(Digest.of(b"absent"), tmp_path / "out.bin")
        assert not list(tmp_path.glob("*out.bin*"))


class DocumentStoreContract:
    """What `DocumentStore` promises."""

    @pytest.fixture
    def stores(self) -> Stores:
        """A fresh registry."""
        raise pytest.UsageError("define the fixture `stores` in the subclass")

    def test_a_created_document_reads_back(self, stores: Stores) -> None:
        assert stores.documents.create("records/ab/one.json", b"one")
        assert stores.documents.read("records/ab/one.json") == b"one"
        assert stores.documents.exists("records/ab/one.json")

    def test_an_identical_second_create_is_a_no_op(self, stores: Stores) -> None:
        stores.documents.create("records/one.json", b"one")
        assert not stores.documents.create("records/one.json", b"one")

    def test_a_different_second_create_is_refused_and_the_first_stays(self, stores: Stores) -> None:
        stores.documents.create("records/one.json", b"one")
        with pytest.raises(DocumentConflict):
            stores.documents.create("records/one.json", b"two")
        assert stores.documents.read("records/one.json") == b"one"

    def test_a_missing_document_is_not_found(self, stores: Stores) -> None:
        assert not stores.documents.exists("records/none.json")
        with pytest.raises(NotFound) as caught:
            stores.documents.read("records/none.json")
        assert caught.value.name == "document-missing"

    def test_of_many_creators_exactly_one_creates(self, stores: Stores) -> None:
        def create(number: int) -> str:
            try:
                stores.documents.create("releases/m/t/0000000001.json", b"%d" % number)
            except DocumentConflict:
                return "lost"
            return str(number)

        with ThreadPoolExecutor(_RACERS) as pool:
            answers = list(pool.map(create, range(_RACERS)))
        winners = [answer for answer in answers if answer != "lost"]
        assert len(winners) == 1
        assert stores.documents.read("releases/m/t/0000000001.json") == winners[0].encode()

    def test_children_are_sorted_and_folders_end_in_a_slash(self, stores: Stores) -> None:
        for name in ("x/b.json", "x/c/d/e.json", "x/a.json", "xy/z.json"):
            stores.documents.create(name, b"{}")
        assert list(stores.documents.children("x")) == ["a.json", "b.json", "c/"]
        assert list(stores.documents.children("x/c")) == ["d/"]

    def test_an_absent_folder_has_no_children(self, stores: Stores) -> None:
        assert list(stores.documents.children("nowhere")) == []

    def test_the_inventory_lists_what_was_created(self, stores: Stores) -> None:
        stores.documents.create("records/one.json", b"one")
        sizes = {file.name: file.size_bytes for file in stores.inventory.files()}
        assert sizes["records/one.json"] == 3


class PointerStoreContract:
    """What `PointerStore` promises."""

    NAME = "channels/m/t/prod/head.json"

    @pytest.fixture
    def stores(self) -> Stores:
        """A fresh registry."""
        raise pytest.UsageError("define the fixture `stores` in the subclass")

    def test_a_pointer_that_was_never_written_is_none(self, stores: Stores) -> None:
        assert stores.pointers.read(self.NAME) is None

    def test_a_swap_on_the_right_version_replaces_the_value(self, stores: Stores) -> None:
        first = stores.pointers.swap(self.NAME, None, b"1")
        second = stores.pointers.swap(self.NAME, first, b"2")
        value = stores.pointers.read(self.NAME)
        assert value is not None
        assert (value.data, value.version) == (b"2", second)
        assert first != second

    @pytest.mark.parametrize("stale", [None, "nonsense"])
    def test_a_swap_on_another_version_changes_nothing(
        self, stores: Stores, stale: str | None
    ) -> None:
        stores.pointers.swap(self.NAME, None, b"1")
        with pytest.raises(Conflict) as caught:
            stores.pointers.swap(self.NAME, stale, b"2")
        assert caught.value.name == "pointer-moved"
        value = stores.pointers.read(self.NAME)
        assert value is not None
        assert value.data == b"1"

    def test_a_swap_on_an_absent_pointer_with_a_version_is_refused(self, stores: Stores) -> None:
        with pytest.raises(Conflict):
            stores.pointers.swap(self.NAME, "nonsense", b"1")
        assert stores.pointers.read(self.NAME) is None

    def test_no_update_is_lost_among_many_writers(self, stores: Stores) -> None:
        def count_up(_: int) -> None:
            while True:
                value = stores.pointers.read(self.NAME)
                number = int(value.data) if value else 0
                version = value.version if value else None
                try:
                    stores.pointers.swap(self.NAME, version, b"%d" % (number + 1))
                except Conflict:
                    continue
                return

        with ThreadPoolExecutor(_RACERS) as pool:
            list(pool.map(count_up, range(_RACERS * 4)))
        value = stores.pointers.read(self.NAME)
        assert value is not None
        assert int(value.data) == _RACERS * 4
