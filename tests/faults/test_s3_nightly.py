"""The long runs over S3: every fault at every request, and many promoters on one channel."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_registry.backends.s3.bucket import Patience
from tests.faults.s3_story import scene, story
from tests.faults.test_s3_faults import LAST_WORDS, Stage, one_fault, outage, stage
from tests.faults.test_s3_promoters import race
from tests.faults.whole import assert_nothing_incomplete_is_visible
from tests.servers.s3 import S3Server
from tests.servers.s3_faults import Fault

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("s3"),
    pytest.mark.usefixtures("s3_credentials"),
]

__all__ = ["stage"]


@pytest.mark.parametrize("fault", list(Fault))
def test_one_fault_at_every_request(
    stage: Stage, fault: Fault, proved: Callable[[str], None]
) -> None:
    ran = one_fault(stage, fault, range(1, stage.requests + 1))
    proved(f"{ran} stories, nothing noticed, nothing lost")


@pytest.mark.parametrize("last", LAST_WORDS)
def test_an_outage_from_every_request_on(
    stage: Stage, last: Fault, proved: Callable[[str], None]
) -> None:
    ran = outage(stage, last, range(1, stage.requests + 1))
    proved(f"{ran} stories, each finished by a rerun")


@pytest.mark.parametrize("fault", list(Fault))
def test_one_fault_at_every_fifth_request_to_a_real_store(
    seaweed: S3Server, tmp_path: Path, fault: Fault
) -> None:
    patience = Patience(attempts=4, pause_s=0, read_s=5)
    with scene(seaweed.endpoint, seaweed.bucket, patience=patience) as here:
        prefix = seaweed.url().partition("?")[0].removeprefix(f"s3://{seaweed.bucket}/")
        draft = here.draft(tmp_path)

        def run(number: int) -> dict[str, bytes]:
            at = f"{prefix}/{number}"
            for server in (here.front, here.direct):
                server.founded(server.url(at))
            here.proxy.restart(lambda n, _m, _p: fault if n == number else None)
            story(here.registry(at, through_proxy=True), draft, tmp_path / "out")
            shutil.rmtree(tmp_path / "out")
            assert_nothing_incomplete_is_visible(here.registry(at, through_proxy=False))
            return here.contents(at)

        expected = run(0)
        total = here.proxy.requests
        for number in range(1 + list(Fault).index(fault) % 5, total + 1, 5):
            assert run(number) == expected, f"request {number}"


def test_64_promoters_on_one_channel_of_a_real_store(
    seaweed: S3Server, proved: Callable[[str], None]
) -> None:
    took_s, requests = race(seaweed, promoters=64)
    proved(f"64 promoters, 64 events in order without a gap: {took_s:.0f} s, {requests} requests")
