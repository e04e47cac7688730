"""A store that goes wrong at each request in turn: every act finishes, or a rerun finishes it.

Here a few requests for each way to go wrong; at night (`test_s3_nightly.py`) every request.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from engine_registry.backends.memory import memory_stores
from engine_registry.errors import Unavailable
from engine_registry.registry import Registry
from tests.faults.s3_story import (
    Scene,
    fixed_clock,
    scene,
    stored,
    story,
)
from tests.faults.whole import assert_nothing_incomplete_is_visible
from tests.servers.s3_fake import FakeS3, serving
from tests.servers.s3_faults import Fault

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3-faults"), pytest.mark.usefixtures("s3_credentials")]

# Small enough that a story takes a fraction of a second.
PART_BYTES = 2000
LAST_WORDS = [Fault.RESET, Fault.LOST, Fault.TORN]


class Stage:
    """The story's world over a fake store, and what the story leaves there."""

    def __init__(self, fake: FakeS3, here: Scene, folder: Path) -> None:
        self.fake = fake
        self.here = here
        self.draft = here.draft(folder)
        self.out = folder / "out"
        self.begin()
        story(here.registry("p", through_proxy=True), self.draft, self.out)
        shutil.rmtree(self.out)
        self.requests = here.proxy.requests
        self.expected = self.contents()
        assert_nothing_incomplete_is_visible(self.seen())

    def begin(self) -> None:
        """A founded, proven registry: the races of the proof would drown the story's requests."""
        self.fake.objects.clear()
        self.fake.uploads.clear()
        self.here.proxy.restart(lambda *_: None)
        for server in (self.here.front, self.here.direct):
            server.founded(server.url("p"))
        self.here.proxy.restart(lambda *_: None)

    def contents(self) -> dict[str, bytes]:
        objects = self.fake.objects.copy()
        return stored({key.removeprefix("p/"): held.data for key, held in objects.items()})

    def seen(self) -> Registry:
        """What lies in the store, read without it: quicker than over HTTP."""
        return Registry(memory_stores(fixed_clock, self.contents()), fixed_clock)


@pytest.fixture(scope="module")
def stage(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    fake = FakeS3()
    with serving(fake) as endpoint, scene(endpoint, fake.bucket, PART_BYTES) as here:
        yield Stage(fake, here, tmp_path_factory.mktemp("story"))


def one_fault(stage: Stage, fault: Fault, requests: Iterable[int]) -> int:
    """The story, once for each of these requests going wrong; how often."""
    ran = 0
    for at in requests:
        stage.begin()
        stage.here.proxy.restart(lambda number, _m, _p, at=at: fault if number == at else None)
        registry = stage.here.registry("p", through_proxy=True)
        story(registry, stage.draft, stage.out)
        assert stage.contents() == stage.expected, f"request {at}"
        assert not stage.fake.uploads
        shutil.rmtree(stage.out)
        ran += 1
    return ran


def outage(stage: Stage, last: Fault, requests: Iterable[int]) -> int:
    """The story, once for each request from which on nothing arrives any more; how often.

    The same as a process that dies there.
    """
    ran = 0
    for at in requests:
        stage.begin()

        def plan(number: int, _m: str, _p: str, at: int = at) -> Fault | None:
            return None if number < at else last if number == at else Fault.ERROR

        stage.here.proxy.restart(plan)
        with pytest.raises(Unavailable):
            story(stage.here.registry("p", through_proxy=True), stage.draft, stage.out)
        assert not stage.out.exists()
        assert_nothing_incomplete_is_visible(stage.seen())
        story(stage.here.registry("p", through_proxy=False), stage.draft)
        assert stage.contents() == stage.expected, f"outage from request {at}"
        ran += 1
    return ran


@pytest.mark.parametrize("fault", list(Fault))
def test_invariant_9_one_fault_at_any_request_is_not_even_noticed(
    stage: Stage, fault: Fault, proved: Callable[[str], None]
) -> None:
    assert stage.requests > 60
    first = 1 + 9 * list(Fault).index(fault)
    ran = one_fault(stage, fault, range(first, stage.requests + 1, 72))
    assert ran >= 2
    proved(f"{ran} stories, nothing noticed, nothing lost")


@pytest.mark.parametrize("last", LAST_WORDS)
def test_invariant_9_an_outage_from_any_request_on_leaves_a_registry_that_a_rerun_finishes(
    stage: Stage, last: Fault, proved: Callable[[str], None]
) -> None:
    first = 1 + 31 * LAST_WORDS.index(last)
    ran = outage(stage, last, range(first, stage.requests + 1, 93))
    assert ran >= 2
    proved(f"{ran} stories, each finished by a rerun")


def test_an_outage_while_a_registry_is_founded_leaves_nothing_half_founded(stage: Stage) -> None:
    for at in count(1, 23):
        stage.fake.objects.clear()
        stage.here.proxy.restart(
            lambda number, _m, _p, at=at: Fault.RESET if number >= at else None
        )
        stores = stage.here.stores(stage.here.front, "p")
        try:
            stores.documents.create("records/one.json", b"one")
        except Unavailable:
            again = stage.here.stores(stage.here.direct, "p")
            assert again.documents.create("records/one.json", b"one")
        else:
            break
    assert at > 60
