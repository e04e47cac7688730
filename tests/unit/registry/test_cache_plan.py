"""What a node's cache keeps: rules alone, on made-up facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from engine_registry.cache_plan import (
    CachedBlob,
    CachedEngine,
    Claim,
    ClaimedRelease,
    Decision,
    Held,
    claim_of,
    decide,
)
from engine_registry.digest import Digest
from engine_registry.events import BadMark, ChannelState, Live, WasLive

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def digest(name: str) -> Digest:
    return Digest.of(name.encode())


def held(
    name: str,
    *,
    hours: float = 1,
    in_use: bool = False,
    missing: int = 0,
    blobs: dict[str, int] | None = None,
) -> Held:
    """An engine of 100 bytes, unless its blobs are given."""
    sizes = {f"weights of {name}": 100} if blobs is None else blobs
    entry = CachedEngine(
        engine=digest(name),
        model="tiny",
        target="cpu",
        blobs=tuple(CachedBlob(digest=digest(b), size_bytes=size) for b, size in sizes.items()),
    )
    return Held(
        entry=entry,
        used_at=NOW - timedelta(hours=hours),
        is_in_use=in_use,
        missing_bytes=missing,
    )


def claim(*names: str, place: str = "/srv/a") -> Claim:
    releases = tuple(
        ClaimedRelease(number=len(names) - position, engine=digest(name))
        for position, name in enumerate(names)
    )
    return Claim(channel="tiny/cpu/prod", place=place, releases=releases, at=NOW)


def decided(*found: Held, claims: tuple[Claim, ...] = (), limit: int) -> Decision:
    return decide(found, claims, limit_bytes=limit, now=NOW)


def kept(decision: Decision, *names: str) -> bool:
    return [one.held.entry.engine for one in decision.kept] == [digest(name) for name in names]


def evicted(decision: Decision) -> dict[Digest, int]:
    return {one.held.entry.engine: one.frees_bytes for one in decision.evicted}


def test_what_was_not_used_for_longest_goes_first():
    found = [held("a", hours=3), held("b", hours=1), held("c", hours=2)]
    decision = decided(*found, limit=200)
    assert kept(decision, "b", "c")
    assert evicted(decision) == {digest("a"): 100}
    assert decision.kept[0].reasons == ("used 1 h ago, within the limit",)
    assert decision.evicted[0].reasons == ("used 3 h ago, the limit is reached",)
    assert kept(decided(*found, limit=300), "b", "c", "a")


def test_a_small_engine_does_not_outlive_a_larger_one_that_was_used_later():
    decision = decided(held("large", hours=1, blobs={"w": 500}), held("small", hours=9), limit=300)
    assert kept(decision)
    assert evicted(decision) == {digest("large"): 500, digest("small"): 100}


def test_what_a_place_serves_and_could_go_back_to_stays_whatever_the_limit():
    found = [held("live", hours=900), held("before", hours=999), held("other", hours=1)]
    decision = decided(*found, claims=(claim("live", "before"),), limit=150)
    assert kept(decision, "live", "before")
    assert evicted(decision) == {digest("other"): 100}
    assert (decision.kept_bytes, decision.over_bytes) == (200, 50)
    assert [one.reasons for one in decision.kept] == [
        ("release 2, live on tiny/cpu/prod, deployed to /srv/a",),
        ("release 1, live before release 2 on tiny/cpu/prod, deployed to /srv/a",),
    ]


def test_every_place_that_keeps_an_engine_is_named():
    claims = (claim("a"), claim("b", "a", place="/srv/b"))
    (reasons,) = (one.reasons for one in decided(held("a"), claims=claims, limit=0).kept)
    assert [reason.rsplit(" ", 1)[1] for reason in reasons] == ["/srv/a", "/srv/b"]


def test_what_is_in_use_stays():
    decision = decided(held("a", in_use=True, hours=9), held("b"), limit=100)
    assert kept(decision, "a")
    assert decision.kept[0].reasons == ("in use at this moment",)


def test_a_shared_file_counts_once_and_goes_with_the_last_that_has_it():
    shared = {"tokenizer": 50}
    found = [
        held("a", hours=1, blobs={"wa": 100, **shared}),
        held("b", hours=2, blobs={"wb": 100, **shared}),
        held("c", hours=3, blobs={"wc": 100, "only of c and d": 7}),
        held("d", hours=4, blobs={"wd": 100, "only of c and d": 7}),
    ]
    decision = decided(*found, limit=250)
    assert kept(decision, "a", "b")
    assert decision.kept_bytes == 250
    assert evicted(decision) == {digest("c"): 107, digest("d"): 100}
    assert digest("tokenizer") in decision.kept_blobs


def test_what_is_claimed_and_not_here_whole_is_named():
    decision = decided(held("live", missing=3), claims=(claim("live", "before"),), limit=900)
    assert list(decision.lacking) == [digest("live"), digest("before")]
    assert not decided(held("live"), claims=(claim("live"),), limit=0).lacking


def was(number: int, event: int) -> WasLive:
    live = Live(number=number, release=digest(f"r{number}"), engine=digest(f"e{number}"))
    return WasLive(live=live, since=NOW, event=event)


def test_a_claim_names_what_is_live_and_the_last_good_ones_before_it():
    history = tuple(was(number, event) for event, number in enumerate([3, 5, 3, 4, 2, 1], 1))
    state = ChannelState(
        model="tiny",
        target="cpu",
        channel="prod",
        number=6,
        history=history,
        bad=(BadMark(number=5, reason="slow"),),
    )
    made = claim_of(state, place="/srv/a", earlier=2, at=NOW)
    assert [release.number for release in made.releases] == [3, 4, 2]
    alone = claim_of(state, place="/srv/a", earlier=0, at=NOW)
    assert [release.number for release in alone.releases] == [3]


names = st.sampled_from("abcdefgh")
sizes = st.dictionaries(st.sampled_from(["w1", "w2", "w3", "w4", "t"]), st.just(40), min_size=1)
facts = st.dictionaries(names, st.tuples(st.integers(0, 50), st.booleans(), sizes), max_size=8).map(
    lambda d: [held(n, hours=h, in_use=u, blobs=b) for n, (h, u, b) in d.items()]
)
claims = st.lists(st.lists(names, min_size=1, max_size=3, unique=True), max_size=2)


@given(facts, claims, st.integers(0, 400))
def test_in_every_case_the_limit_holds_for_all_that_nothing_protects(found, claimed, limit):
    held_to = tuple(claim(*those) for those in claimed)
    decision = decided(*found, claims=held_to, limit=limit)
    stay = {one.held.entry.engine for one in decision.kept}
    go = {one.held.entry.engine for one in decision.evicted}
    assert stay | go == {one.entry.engine for one in found}
    assert not stay & go
    protected = {release.engine for one in held_to for release in one.releases}
    protected |= {one.entry.engine for one in found if one.is_in_use}
    assert not go & protected
    if decision.over_bytes:
        assert stay <= protected
    free = [one.held.used_at for one in decision.kept if one.held.entry.engine not in protected]
    assert all(after >= one.held.used_at for after in free for one in decision.evicted)
    assert all(one.reasons for one in (*decision.kept, *decision.evicted))
