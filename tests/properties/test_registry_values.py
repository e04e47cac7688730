"""Properties of the pure types that hold for any value."""

import io
import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_registry.digest import Digest
from engine_registry.documents import canonical_json, seal, unseal, unseal_body
from engine_registry.errors import IntegrityError, InvalidInput
from engine_registry.events import (
    ROLLBACK_WINDOW,
    Approved,
    Change,
    ChannelState,
    Event,
    Frozen,
    Held,
    HoldLifted,
    Live,
    Promoted,
    RolledBack,
    Thawed,
    fold,
)
from engine_registry.layout import number_of, release
from engine_registry.manifest import check_title
from engine_registry.record import Actor, ReferrerLink
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.testing.samples import SAMPLE_AT

digests = st.binary(max_size=8).map(Digest.of)
slugs = st.from_regex(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?", fullmatch=True)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
# Surrogates are no Unicode text and have no UTF-8 form.
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.binary())
def test_a_digest_reads_back_from_its_text_and_does_not_depend_on_how_it_was_taken(
    data: bytes,
) -> None:
    digest = Digest.of(data)
    assert Digest.parse(str(digest)) == digest
    assert Digest.of_stream(io.BytesIO(data)) == digest


@given(st.text(max_size=80))
def test_no_other_text_is_a_digest(text: str) -> None:
    try:
        digest = Digest.parse(text)
    except InvalidInput:
        return
    assert str(digest) == text


@given(slugs, slugs, slugs, st.integers(1, 999_999_999))
def test_names_read_back_from_their_text(
    model: str, target: str, channel: str, number: int
) -> None:
    product = ProductRef(model, target)
    assert ProductRef.parse(str(product)) == product
    assert ChannelRef.parse(f"{product}/{channel}") == ChannelRef(product, channel)
    ref = ReleaseRef(product, number)
    assert ReleaseRef.parse(str(ref)) == ref
    assert number_of(release(ref).rpartition("/")[2]) == number


@given(st.text(max_size=100))
def test_a_name_that_is_accepted_is_safe_as_a_path(text: str) -> None:
    for kind in (ProductRef, ChannelRef, ReleaseRef):
        try:
            accepted = str(kind.parse(text))
        except InvalidInput:
            continue
        assert accepted == text
        parts = text.replace(":", "/").split("/")
        assert all(part not in {"", ".", ".."} and not part.startswith("-") for part in parts)


@given(st.text(max_size=300))
def test_a_title_that_is_accepted_stays_inside_its_directory(text: str) -> None:
    try:
        check_title(text)
    except InvalidInput:
        return
    parts = text.split("/")
    assert all(part not in {"", ".", ".."} for part in parts)
    assert "\x00" not in text


@given(st.dictionaries(texts, values, max_size=5))
def test_canonical_json_reads_back_and_does_not_depend_on_the_order_of_keys(
    value: dict[str, object],
) -> None:
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(dict(reversed(value.items()))) == data
    assert canonical_json(json.loads(data)) == data


links = st.builds(
    ReferrerLink,
    subject=digests,
    manifest=digests,
    artifact_type=texts.filter(lambda text: 0 < len(text) <= 400),
    annotations=st.dictionaries(texts, texts, max_size=3),
)


@given(links)
def test_a_sealed_document_reads_back(link: ReferrerLink) -> None:
    assert unseal(seal(link), ReferrerLink, "x") == (link, link.digest)


@given(links, st.data())
def test_any_flipped_bit_of_a_sealed_document_is_found(
    link: ReferrerLink, data: st.DataObject
) -> None:
    sealed = bytearray(seal(link))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(IntegrityError):
        unseal_body(bytes(sealed), "x")


@given(links, st.data())
def test_any_truncation_of_a_sealed_document_is_found(
    link: ReferrerLink, data: st.DataObject
) -> None:
    sealed = seal(link)
    with pytest.raises(IntegrityError):
        unseal_body(sealed[: data.draw(st.integers(0, len(sealed) - 1))], "x")


lives = st.integers(1, 6).map(
    lambda number: Live(number=number, release=Digest.of(b"%d" % number), engine=Digest.of(b"e"))
)
reasons = st.just("reason")
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(Promoted, to=lives, policy=digests),
    st.builds(RolledBack, to=lives, reason=reasons),
    lives.map(lambda live: Approved(number=live.number, release=live.release)),
    st.builds(Frozen, reason=reasons),
    st.builds(Thawed, reason=reasons),
    st.builds(Held, reason=reasons),
    st.builds(HoldLifted, reason=reasons),
)


def chain(log: list[Change]) -> list[Event]:
    events: list[Event] = []
    for number, change in enumerate(log, 1):
        events.append(
            Event(
                model="m",
                target="t",
                channel="c",
                number=number,
                previous=events[-1].digest if events else None,
                operation=f"op-{number}",
                actor=Actor(name="a", proved_by="test"),
                at=SAMPLE_AT + timedelta(seconds=number),
                change=change,
            )
        )
    return events


EMPTY = ChannelState(model="m", target="t", channel="c")


def folded(events: list[Event], state: ChannelState = EMPTY) -> ChannelState:
    for event in events:
        state = fold(state, event, event.digest)
    return state


@given(st.lists(changes, max_size=30))
def test_what_is_live_is_what_the_last_move_named(log: list[Change]) -> None:
    state = folded(chain(log))
    moves = [change.to for change in log if isinstance(change, Promoted | RolledBack)]
    assert state.live == (moves[-1] if moves else None)
    assert [entry.live for entry in state.history] == moves[::-1][:ROLLBACK_WINDOW]
    assert state.number == len(log)


@given(st.lists(changes, max_size=15))
def test_what_is_live_by_promotion_or_rollback_is_never_marked_bad(log: list[Change]) -> None:
    state = folded(chain(log))
    bad = [mark.number for mark in state.bad]
    assert len(set(bad)) == len(bad)
    if state.live is not None:
        assert state.live.number not in bad


@given(st.lists(changes, max_size=15))
def test_a_rollback_sets_a_hold_and_only_lifting_it_ends_it(log: list[Change]) -> None:
    expected = False
    for change in log:
        if isinstance(change, RolledBack | Held):
            expected = True
        elif isinstance(change, HoldLifted):
            expected = False
    assert (folded(chain(log)).hold is not None) == expected


@given(st.lists(changes, max_size=12), st.data())
def test_folding_may_stop_be_stored_and_go_on(log: list[Change], data: st.DataObject) -> None:
    events = chain(log)
    at = data.draw(st.integers(0, len(events)))
    stored, _ = unseal(seal(folded(events[:at])), ChannelState, "head.json")
    assert folded(events[at:], stored) == folded(events)


@given(st.lists(changes, min_size=2, max_size=8), st.data())
def test_no_event_can_be_left_out_changed_or_put_in_another_order(
    log: list[Change], data: st.DataObject
) -> None:
    events = chain(log)
    at = data.draw(st.integers(0, len(events) - 2))
    how = data.draw(st.sampled_from(["drop", "swap", "change"]))
    if how == "drop":
        broken = events[:at] + events[at + 1 :]
    elif how == "swap":
        broken = [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
    else:
        broken = [*events]
        broken[at] = events[at].model_copy(update={"operation": "another"})
    with pytest.raises(IntegrityError):
        folded(broken)


@given(st.lists(changes, min_size=1, max_size=3))
def test_an_event_of_another_channel_is_refused(log: list[Change]) -> None:
    events = chain(log)
    with pytest.raises(IntegrityError):
        folded(events, EMPTY.model_copy(update={"channel": "other"}))
