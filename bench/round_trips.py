"""A rollback in a bucket takes few round trips, however long the channel's log is.

Requests are counted at a server in this process that takes its time over each, so that those which
wait for one another (round trips) are told from those under way at once: until the move's event is
there, which is when it has happened, and in all. Then the same moves are timed at SeaweedFS on this
machine. A real bucket answers in 10 to 30 ms: the round trips say more than the time. Every move is
a real one, in a process that has used the registry before. The peer is one small PutObject to the
same server, the least that any move can take.
"""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

import measure
import project
import servers
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import lift_hold
from engine_registry.record import Actor
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry, utc_now
from engine_registry.testing import samples
from engine_registry.transfer import transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.record import Release

ACTOR = Actor(name="bench", proved_by="claimed")
LOGS = (4, 300)
# Long beside everything else that a move does, also on a busy machine.
ANSWER_S = 0.2


def main() -> None:
    options = measure.arguments(__doc__, repeats=(30, "moves of each kind"))
    repeats = 3 if options.quick else options.repeats
    logs = LOGS[:1] if options.quick else LOGS
    with measure.bench(__doc__, options.dir) as scratch:
        here = project.prepare(scratch, scratch / "registry", events=2)
        servers.use_test_credentials()
        _counted(here, logs)
        (scratch / "weed").mkdir()
        with servers.seaweed(scratch / "weed") as bucket:
            if bucket is not None:
                _timed(here, bucket, logs, repeats)


def _counted(here: project.Project, logs: tuple[int, ...], answer_s: float = ANSWER_S) -> None:
    print(
        "\nround trips until it has happened and in all, and requests, by the length of the log\n"
    )
    print(f"| | {' | '.join(f'{events} events' for events in logs)} |")
    print(f"| - |{' -: |' * len(logs)}")
    counts: dict[str, list[str]] = {}
    for events in logs:
        fake = servers.FakeS3()
        with servers.serving(fake) as endpoint:
            moves = _moves(here, servers.S3Server(endpoint), events)
            for act in moves.values():  # warms up
                act()
            happened: list[float] = []

            def answer(method: str, key: str, happened: list[float] = happened) -> None:
                time.sleep(answer_s)
                if method == "PUT" and "/events/" in key:
                    happened.append(time.perf_counter())

            fake.before = answer
            for name, act in moves.items():
                fake.requests.clear()
                happened.clear()
                began = time.perf_counter()
                act()
                ended = time.perf_counter()
                trips = [int((at - began) / answer_s) for at in (*happened, ended)]
                told = ", ".join(map(str, [trips[0], trips[-1], len(fake.requests)]))
                counts.setdefault(name, []).append(told)
    for name, found in counts.items():
        print(f"| {name} | {' | '.join(found)} |")


def _timed(
    here: project.Project,
    server: servers.S3Server,
    logs: tuple[int, ...],
    repeats: int,
) -> None:
    put = partial(server.client.put_object, Bucket=server.bucket, Key="bench", Body=b"{}")
    for events in logs:
        samples_s: dict[str, list[float]] = {"one PutObject": []}
        moves = _moves(here, server, events)
        for _ in range(repeats + 1):
            for name, act in {"one PutObject": put, **moves}.items():
                began = time.perf_counter()
                act()
                samples_s.setdefault(name, []).append(time.perf_counter() - began)
        print(f"\n{events} events in the log, over SeaweedFS: p50 and p99, ms\n")
        print("| | n | p50 | p99 |\n| - | -: | -: | -: |")
        for name, taken in samples_s.items():
            p50, p99 = (measure.percentile(taken[1:], share) * 1000 for share in (0.5, 0.99))
            print(f"| {name} | {len(taken) - 1} | {p50:.1f} | {p99:.1f} |")


def _moves(
    here: project.Project, server: servers.S3Server, events: int
) -> dict[str, Callable[[], object]]:
    """Moves that can be made in turn, over and over, on a log that is `events` long at first."""
    url = server.url()
    server.founded(url)
    registry = Registry(server.stores(url), utc_now, url)
    second = _with_releases(here, registry)
    for number in range(events):
        first = registry.releases.release(_ref(here, 1))
        change = samples.sample_promotion(second if number % 2 == 0 else first)
        samples.sample_event(registry, change, ref=here.channel, operation=uuid.uuid4().hex)
    desk = Desk(registry=registry, actor=ACTOR, clock=utc_now)
    return {
        "status": lambda: registry.channels.state(here.channel),
        "lift the hold": lambda: lift_hold(desk, here.channel, reason="bench"),
        "promote": partial(
            promote,
            desk,
            second,
            here.channel,
            policy=here.policy,
            wanted=here.wanted,
            reason="bench",
            overrides=("bad",),
        ),
        "roll back": lambda: roll_back(desk, here.channel, reason="bench"),
    }


def _with_releases(here: project.Project, registry: Registry) -> Release:
    source = open_registry(here.url)
    for number in (1, 2):
        transfer(source, _ref(here, number), registry, actor=ACTOR)
    return registry.releases.release(_ref(here, 2))


def _ref(here: project.Project, number: int) -> ReleaseRef:
    return ReleaseRef(here.channel.product, number)


if __name__ == "__main__":
    main()
