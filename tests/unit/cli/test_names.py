"""What is meant by what a person types: channels that are none, bytes of two products."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.testing.samples import SAMPLE_AT, sample_draft, sample_key, sample_release
from tests.unit.cli.conftest import PRODUCT

OTHER = ProductRef("tiny", "cpu-x86-64-v4")
PROD, STAGING = ChannelRef(PRODUCT, "prod"), ChannelRef(PRODUCT, "staging")
WHY = ("--reason", "incident")


@pytest.mark.parametrize("verb", ["freeze", "hold"])
@pytest.mark.parametrize("lift", [(), ("--lift",)])
@pytest.mark.parametrize(
    ("mistyped", "says"),
    [
        ("tiny/cpu-x86-64-v3/prdo", "tiny/cpu-x86-64-v3 has no channel 'prdo'"),
        ("tiny/cpu-x86-64-v4/prod", "tiny/cpu-x86-64-v4 has no release"),
        ("no/such/prod", "no policy in channels.yaml covers no/such"),
    ],
)
def test_a_mistyped_channel_is_refused_and_stays_none(project, verb, lift, mistyped, says):
    project.release("one")
    refused = project.run(verb, mistyped, *WHY, *lift)
    assert refused.code == 2
    assert f"error[unknown-channel]: channel {mistyped}: has no event in file://" in refused.err
    assert says in refused.err
    assert project.registry.channels.channels() == []


def test_a_name_that_is_near_is_offered(project):
    project.release("one")
    said = project.run("freeze", "tiny/cpu-x86-64-v4/prod", *WHY).err
    assert f"did you mean {PROD}? `enginectl status`" in said


@pytest.mark.parametrize("verb", ["freeze", "hold"])
def test_a_channel_of_the_policy_may_be_stopped_before_anything_was_live(project, verb):
    project.release("one")
    assert project.run(verb, str(PROD), *WHY).code == 0
    assert project.registry.channels.channels() == [PROD]


@pytest.mark.parametrize("channels", [None, "policies: [", "schema_version: 2\n"])
def test_what_the_registry_knows_needs_no_policy(project, channels):
    release = project.release("one")
    assert project.run("promote", release.name, "--to", "staging").code == 0
    path = project.root / "channels.yaml"
    path.unlink() if channels is None else path.write_text(channels)
    assert project.run("freeze", str(STAGING), *WHY).code == 0
    assert project.run("freeze", str(STAGING), *WHY, "--lift").code == 0
    refused = project.run("freeze", str(PROD), *WHY)
    assert (refused.code, "error[unknown-channel]" in refused.err) == (2, True)
    assert len(refused.err.splitlines()) == 2


def shared(project):
    """Release 1 of each of two products, cut from one engine; the digest of it."""
    first = project.release("one")
    with tempfile.TemporaryDirectory() as folder:
        draft = sample_draft(Path(folder), "one", product=OTHER)
        later = SAMPLE_AT + timedelta(days=1)
        facts = replace(draft.facts, build_key=sample_key("other"), built_at=later)
        engine = project.registry.engines.put_engine(replace(draft, facts=facts))
    assert engine.digest == first.content.engine
    sample_release(project.registry, engine, product=OTHER)
    return engine.digest


@pytest.mark.parametrize("words", [("approve", "--on", "guarded"), ("promote", "--to", "staging")])
def test_a_digest_that_two_products_released_is_ambiguous(project, words):
    verb, *options = words
    refused = project.run(verb, shared(project).hex[:12], *options)
    assert refused.code == 2
    assert f"names 2 things: {PRODUCT}:1, {OTHER}:1" in refused.err
    assert "the release's full name" in refused.err


def test_a_release_of_shared_bytes_says_as_which_product(project, monkeypatch):
    digest = shared(project)
    refused = project.run("release", digest.hex[:12])
    assert (refused.code, "error[ambiguous-reference]" in refused.err) == (2, True)
    assert f"was built as 2 products: {PRODUCT}, {OTHER}" in refused.err
    assert f"`enginectl release {digest.short} --product {PRODUCT}`" in refused.err
    refused = project.run("release", digest.hex[:12], "--product", "tiny/h100")
    assert f"was never built as tiny/h100, only as {PRODUCT}, {OTHER}" in refused.err
    cut = []
    monkeypatch.setattr(
        "engine_pipeline.promote.release.cut_release",
        lambda desk, engine, product: cut.append(product) or sample_of(desk, engine, product),
    )
    for product in (PRODUCT, OTHER):
        assert project.run("release", digest.hex, "--product", str(product)).code == 0
    assert cut == [PRODUCT, OTHER]


def sample_of(desk, engine, product):
    return desk.registry.resolve_release(str(engine), product)


@pytest.mark.parametrize(
    ("options", "shown", "others"),
    [
        ((), OTHER, [f"{PRODUCT}:1"]),
        (("--product", str(PRODUCT)), PRODUCT, []),
        (("--product", str(OTHER)), OTHER, []),
        (("--product", "*/cpu-x86-64-v3"), PRODUCT, []),
        (("--product", "*/cpu-x86-64-v4"), OTHER, []),
        (("--product", "tiny/*"), OTHER, [f"{PRODUCT}:1"]),
    ],
)
def test_a_list_keeps_the_releases_of_two_products_apart(project, options, shown, others):
    shared(project)
    (engine,) = project.run("list", *options, as_json=True).json["engines"]
    found = (engine["product"], engine["releases"], engine["also_released"])
    assert found == (str(shown), [1], others)


def test_hints_name_a_command_that_lists_what_they_say(project):
    project.release("one")
    (project.root / "channels.yaml").unlink()
    missing = project.run("show", f"{PRODUCT}:9")
    assert f"run `enginectl list --product {PRODUCT}` to list its releases" in missing.err
    listed = project.run("list", "--product", str(PRODUCT), as_json=True).json["engines"]
    assert [engine["releases"] for engine in listed] == [[1]]
    for unknown in ("show tiny", "show 0123456789", "show tiny/none:1"):
        assert "run `enginectl list` to list " in project.run(*unknown.split()).err
