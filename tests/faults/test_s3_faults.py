"""A store that goes wrong at each request in turn: every act finishes, or a rerun finishes it."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from engine_registry.errors import NotFound, Unavailable
from tests.faults.s3_story import Scene, assert_nothing_incomplete_is_visible, scene, story
from tests.servers.s3_fake import FakeS3, serving
from tests.servers.s3_faults import Fault

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]

# Small enough that hundreds of stories take seconds; real stores have their own run at night.
PART_BYTES = 2000


@pytest.fixture
def fake() -> FakeS3:
    return FakeS3(bucket="engines")


@pytest.fixture
def here(fake: FakeS3) -> Iterator[Scene]:
    with serving(fake) as endpoint, scene(endpoint, fake.bucket, PART_BYTES) as found:
        yield found


def begin(here: Scene, fake: FakeS3, prefix: str) -> None:
    """A founded, proven registry: the race of the proof would drown the story's own requests."""
    fake.objects.clear()
    fake.uploads.clear()
    for server in (here.front, here.direct):
        server.founded(server.url(prefix))
    here.proxy.restart(lambda *_: None)


def requests_of_the_story(here: Scene, fake: FakeS3, folder: Path) -> int:
    begin(here, fake, "counted")
    story(here.registry("counted", through_proxy=True), here.draft(folder), folder / "out")
    shutil.rmtree(folder / "out")
    return here.proxy.requests


@pytest.mark.parametrize("fault", list(Fault))
def test_invariant_9_one_fault_at_any_request_is_not_even_noticed(
    here: Scene, fake: FakeS3, tmp_path: Path, fault: Fault
) -> None:
    total = requests_of_the_story(here, fake, tmp_path)
    expected = here.contents("counted")
    assert total > 60
    # Each kind of fault takes its turn at every eighth request; all meet all at night.
    for at in range(1 + list(Fault).index(fault), total + 1, len(Fault)):
        begin(here, fake, "p")
        here.proxy.restart(lambda number, _m, _p, at=at: fault if number == at else None)
        story(here.registry("p", through_proxy=True), here.draft(tmp_path), tmp_path / "out")
        assert here.contents("p") == expected, f"request {at}"
        assert not fake.uploads
        assert_nothing_incomplete_is_visible(here.registry("p", through_proxy=False))
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("last", [Fault.RESET, Fault.LOST, Fault.TORN])
def test_invariant_9_an_outage_from_any_request_on_leaves_a_registry_that_a_rerun_finishes(
    here: Scene, fake: FakeS3, tmp_path: Path, last: Fault
) -> None:
    """The same as a process that dies there: nothing it does arrives any more."""
    total = requests_of_the_story(here, fake, tmp_path)
    expected = here.contents("counted")
    started = 1 + [Fault.RESET, Fault.LOST, Fault.TORN].index(last)
    for at in range(started, total + 1, 6):
        begin(here, fake, "p")

        def plan(number: int, _m: str, _p: str, at: int = at) -> Fault | None:
            return None if number < at else last if number == at else Fault.ERROR

        here.proxy.restart(plan)
        # A listing of uploads that fails is done without: the outage shows with the next request.
        with pytest.raises((Unavailable, NotFound)) as caught:
            story(here.registry("p", through_proxy=True), here.draft(tmp_path), tmp_path / "out")
        assert isinstance(caught.value, Unavailable), caught.value
        assert not (tmp_path / "out").exists()
        healthy = here.registry("p", through_proxy=False)
        assert_nothing_incomplete_is_visible(healthy)
        story(healthy, here.draft(tmp_path))
        assert here.contents("p") == expected, f"outage from request {at}"


def test_an_outage_while_a_registry_is_founded_leaves_nothing_half_founded(
    here: Scene, fake: FakeS3
) -> None:
    """Every request of the proof and the founding fails in turn, for good."""
    for at in count(1):
        fake.objects.clear()
        here.proxy.restart(lambda number, _m, _p, at=at: Fault.RESET if number >= at else None)
        stores = here.stores(here.front, "p")
        try:
            stores.documents.create("records/one.json", b"one")
        except Unavailable:
            again = here.stores(here.direct, "p")
            assert again.documents.create("records/one.json", b"one")
        else:
            break
    assert at > 60
