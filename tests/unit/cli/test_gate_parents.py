"""Whom a candidate's answers are compared with, and what `golden` writes and shows."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from engine_pipeline.cli.parents import parents_for, still_held_to, with_parents
from engine_pipeline.cli.wiring import Shell
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_parent import NoParent, ParentEngine
from engine_pipeline.gates.parity_result import Parent, ParityResult
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.template_file import load_template
from engine_pipeline.promote import release as releasing
from engine_registry.documents import canonical_json
from engine_registry.errors import Incompatible, InvalidInput, NotFound
from engine_registry.refs import ChannelRef
from engine_registry.testing.samples import (
    sample_draft,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from tests.chat_world import ChatBackend
from tests.unit.cli.conftest import PRODUCT

SPEC = f"{PRODUCT}-fp16"


def policy(*parents: str) -> GatePolicy:
    return GatePolicy.model_validate(
        {
            "suite": "core",
            "quality": {"min_score": 0.9},
            "parity": {"parent": list(parents), "max_kl": 0.1},
        }
    )


@pytest.fixture
def shell(project, monkeypatch) -> Shell:
    """Where every engine is built from the same weights, unless a test says otherwise."""
    lock = SimpleNamespace(
        image=None,
        source=SimpleNamespace(files=("weights",), revision="1"),
        spec=SimpleNamespace(
            limits=SimpleNamespace(model_dump=lambda **_: {}), serving={}, name="tiny"
        ),
    )
    monkeypatch.setattr(releasing, "lock_of", lambda registry, record: lock)
    monkeypatch.setattr(Shell, "backend", lambda self, kind: ChatBackend())
    return Shell(
        registry_url=f"file://{project.root}/engines",
        channels_file=str(project.root / "channels.yaml"),
        cache_dir=str(project.root / "cache"),
    )


def engine(project, name: str, **behaviour):
    data = canonical_json({"answer": "yes", **behaviour})
    return sample_engine(project.registry, name, {"behaviour.json": data}, product=PRODUCT)


def engine_of_spec(project, folder, name: str):
    data = canonical_json({"answer": name})
    draft = sample_draft(folder, name, {"behaviour.json": data}, product=PRODUCT)
    facts = dataclasses.replace(draft.facts, spec=SPEC)
    return project.registry.engines.put_engine(dataclasses.replace(draft, facts=facts))


def record_of(stored):
    return stored.records[0]


def test_an_engine_that_is_named_is_a_parent_with_all_that_serving_it_takes(project, shell):
    mine, theirs = engine(project, "mine"), engine(project, "theirs", usage=False)
    (parent,) = parents_for(shell, record_of(mine), policy(str(theirs.digest)))
    assert isinstance(parent, ParentEngine)
    assert (parent.engine, parent.parent.precision) == (theirs.digest, "int8")
    assert parent.runtime_config == {"limits": {}, "serving": {}}


def test_what_is_live_on_a_channel_of_the_product_is_a_parent(project, shell):
    mine, theirs = engine(project, "mine"), engine(project, "theirs", usage=False)
    release = sample_release(project.registry, theirs, product=PRODUCT)
    ref = ChannelRef.parse(f"{PRODUCT}/prod")
    sample_event(project.registry, sample_promotion(release), ref=ref, operation="x")
    (parent,) = parents_for(shell, record_of(mine), policy("prod"))
    assert isinstance(parent, ParentEngine)
    assert parent.parent.named == f"{PRODUCT}/prod"
    assert parent.runtime_config == {"slots": 2}  # the release's own


def test_a_channel_with_nothing_live_skips_the_comparison_and_says_so(project, shell):
    (parent,) = parents_for(shell, record_of(engine(project, "mine")), policy("prod"))
    assert isinstance(parent, NoParent)
    assert parent.outcome is Outcome.SKIPPED
    assert "nothing is live on" in parent.why


def test_an_engine_is_not_its_own_parent(project, shell):
    mine = engine(project, "mine")
    (parent,) = parents_for(shell, record_of(mine), policy(str(mine.digest)))
    assert isinstance(parent, NoParent)
    assert parent.outcome is Outcome.SKIPPED


def test_a_spec_without_an_engine_cannot_be_judged_and_the_command_that_builds_it_is_named(
    project, shell
):
    (parent,) = parents_for(shell, record_of(engine(project, "mine")), policy(SPEC))
    assert isinstance(parent, NoParent)
    assert parent.outcome is Outcome.ERRORED
    assert f"enginectl build build_specs/{SPEC}.yaml" in parent.why


def test_a_spec_means_its_engine_of_the_candidates_own_weights(
    project, shell, tmp_path, monkeypatch
):
    mine, theirs = engine(project, "mine"), engine_of_spec(project, tmp_path, "theirs")
    (parent,) = parents_for(shell, record_of(mine), policy(SPEC))
    assert isinstance(parent, ParentEngine)
    assert parent.engine == theirs.digest

    def lock_of(registry, record):
        number = "2" if record.spec == SPEC else "1"
        return SimpleNamespace(source=SimpleNamespace(files=(number,), revision=number))

    monkeypatch.setattr(releasing, "lock_of", lock_of)
    (parent,) = parents_for(shell, record_of(mine), policy(SPEC))
    assert isinstance(parent, NoParent)
    assert "is from revision 2, this one from 1" in parent.why


def test_a_parent_for_another_device_is_refused_with_both_sides(project, shell):
    mine, theirs = engine(project, "mine"), engine(project, "theirs", usage=False)
    platform = record_of(mine).platform.model_copy(update={"sku": "h100-sxm-80gb"})
    elsewhere = record_of(mine).model_copy(update={"platform": platform})
    with pytest.raises(Incompatible, match="cpu-x86-64-v3, engine .* for h100-sxm-80gb"):
        parents_for(shell, elsewhere, policy(str(theirs.digest)))


def test_a_name_of_nothing_is_not_found(project, shell):
    with pytest.raises(NotFound):
        parents_for(shell, record_of(engine(project, "mine")), policy("f" * 64))


def test_a_policy_without_parity_has_no_parents(project, shell):
    plain = policy("prod").model_copy(update={"parity": None})
    assert parents_for(shell, record_of(engine(project, "mine")), plain) == ()


def test_parents_of_the_command_line_make_another_policy():
    own = policy("prod")
    assert with_parents(own, "core", ()) is own
    other = with_parents(own, "core", ["abcdef0123", "abcdef0123"])
    assert other.parity is not None
    assert other.parity.parent == ("abcdef0123",)
    assert other.digest != own.digest


def test_a_parent_for_a_gate_without_bars_is_refused():
    plain = policy("prod").model_copy(update={"parity": None})
    with pytest.raises(InvalidInput) as raised:
        with_parents(plain, "core", ["prod"])
    assert raised.value.name == "gate-without-parity"


def test_a_policy_without_parity_has_the_digest_it_always_had():
    plain = policy("prod").model_copy(update={"parity": None})
    assert (
        plain.digest
        == GatePolicy.model_validate({"suite": "core", "quality": {"min_score": 0.9}}).digest
    )
    assert plain.digest != policy("prod").digest


def test_a_report_holds_only_while_the_parents_are_the_same(project, shell):
    mine, theirs = engine(project, "mine"), engine(project, "theirs", usage=False)
    parents = parents_for(shell, record_of(mine), policy(str(theirs.digest)))
    known = ParityResult(
        parent=Parent(named="x", engine=theirs.digest), outcome=Outcome.PASSED, reason="x"
    )
    assert still_held_to([known], parents)
    other = known.model_copy(update={"parent": Parent(named="x", engine=mine.digest)})
    assert not still_held_to([other], parents)
    assert not still_held_to([], parents)


def test_golden_record_says_that_a_server_does_not_tell_what_it_makes_of_a_chat(project, shell):
    stored = engine(project, "mine")
    ran = project.run("golden", "record", str(stored.digest), "--suite", "core", as_json=True)
    assert ran.code == 4
    assert ran.json["error"]["reference"] == "template-not-told"
    assert load_template(project.root / "golden_prompts" / "core") is None
