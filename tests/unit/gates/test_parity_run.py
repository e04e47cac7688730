"""Parity on server processes that list no tokens: what is said, and what is never let through."""

from __future__ import annotations

from typing import Any

import pytest

from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_parent import ANSWERS_ARTIFACT, ParentEngine
from engine_pipeline.gates.parity_result import Parent
from engine_pipeline.gates.parity_run import chosen_cases
from engine_pipeline.gates.suite import Suite
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError
from engine_registry.registry import Registry
from tests.chat_world import GOOD, ChatBackend, engine_of, registry_at, suite_of
from tests.integration.test_gate_run import DEVICE, judge, policy


@pytest.fixture
def registry(tmp_path) -> Registry:
    return registry_at(tmp_path)


def parent_of(engine: Digest, **options: Any) -> ParentEngine:
    return ParentEngine(
        parent=Parent(named="kin", engine=engine),
        engine=engine,
        backend=ChatBackend(),
        runtime_config={"options": options.get("options", ())},
        runtime=DEVICE.runtime,
    )


def bars(**parity: Any):
    return policy(parity={"parent": "kin", **parity})


def compared(registry, tmp_path, candidate, parent, **parity: Any):
    report, _ = judge(
        registry, candidate, tmp_path, policy=bars(**parity), parents=[parent_of(parent)]
    )
    return report, report.parity[0]


def test_an_endpoint_without_logprobs_is_compared_word_by_word_and_the_rest_is_not_measured(
    registry, tmp_path
):
    parent, candidate = engine_of(registry), engine_of(registry, ttft_s=0.001)
    report, result = compared(registry, tmp_path, candidate, parent, min_prefix_agreement=0.9)
    assert result.outcome is Outcome.PASSED, result.reason
    assert result.measures is not None
    assert (result.measures.unit, result.measures.identical) == ("words", 2)
    measured = {one.measure: one for one in result.findings}
    assert "not measured: the endpoint gives no log probabilities" in measured["KL"].reason
    assert "not measured: the endpoint gives no log probabilities" in to_markdown(report)


def test_a_bar_that_such_an_endpoint_cannot_show_is_inconclusive(registry, tmp_path):
    parent, candidate = engine_of(registry), engine_of(registry, ttft_s=0.001)
    report, result = compared(registry, tmp_path, candidate, parent, max_kl=0.1)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert report.outcome is Outcome.INCONCLUSIVE


def test_a_candidate_that_says_something_else_fails_on_its_words(registry, tmp_path):
    parent = engine_of(registry)
    other = {name: f"Perhaps {text}" for name, text in GOOD.items()}
    candidate = engine_of(registry, answers=other)
    report, result = compared(registry, tmp_path, candidate, parent, min_prefix_agreement=0.9)
    assert result.outcome is Outcome.FAILED
    assert report.outcome is Outcome.FAILED
    assert "cannot be told" in to_markdown(report)


@pytest.mark.parametrize(
    ("until", "outcome"),
    [("2999-12-31", Outcome.PASSED), ("2000-01-01", Outcome.FAILED)],
    ids=["in-quarantine", "quarantine-over"],
)
def test_cases_in_quarantine_are_no_fall_against_the_parent(registry, tmp_path, until, outcome):
    flaky = suite_of(
        *(
            {
                "id": f"flaky-{number}",
                "tags": ["flaky"],
                "messages": [{"role": "user", "content": f"Trip {number}?"}],
                "checks": [{"kind": "contains", "all_of": ["up"]}],
                "quarantine": {"owner": "Ada", "until": until, "reason": "trips"},
            }
            for number in range(8)
        )
    )
    # The parent stands where the candidate falls: eight lost cases are no chance.
    parent, candidate = engine_of(registry, answer="up"), engine_of(registry, answer="down")
    report, _ = judge(
        registry,
        candidate,
        tmp_path,
        policy=bars(max_tag_drop=0.1),
        parents=[parent_of(parent)],
        suite=flaky,
    )
    [result] = report.parity
    assert result.outcome is outcome, result.reason
    assert {one.tag for one in result.tags} == (
        {None, "facts"} if outcome is Outcome.PASSED else {None, "facts", "flaky"}
    )


def test_a_parent_is_asked_once_and_again_only_if_something_decides_otherwise(registry, tmp_path):
    parent, candidate = engine_of(registry), engine_of(registry, ttft_s=0.001)
    kept = lambda: len(registry.engines.referrers(parent, ANSWERS_ARTIFACT))  # noqa: E731
    reused = []
    for prompts in (2, 2, 1):
        _, result = compared(
            registry, tmp_path, candidate, parent, min_prefix_agreement=0.5, prompts=prompts
        )
        reused.append((result.reused, kept()))
    assert reused == [(False, 1), (True, 1), (False, 2)]


def test_a_parent_that_does_not_load_leaves_the_comparison_errored(registry, tmp_path):
    parent, candidate = engine_of(registry), engine_of(registry, ttft_s=0.001)
    broken = parent_of(parent, options=("--exit-at-load", "3"))
    report, _ = judge(
        registry,
        candidate,
        tmp_path,
        policy=bars(min_prefix_agreement=0.5),
        parents=[broken],
    )
    assert report.parity[0].outcome is Outcome.ERRORED
    assert "the parent" in report.parity[0].reason
    assert report.outcome is Outcome.ERRORED
    assert registry.engines.referrers(parent, ANSWERS_ARTIFACT) == []


def test_a_candidate_that_dies_while_it_is_compared_fails(registry, tmp_path):
    parent = engine_of(registry)
    report, result = compared(
        registry, tmp_path, engine_of(registry, exit_after=1), parent, min_prefix_agreement=0.5
    )
    assert report.outcome is Outcome.FAILED
    assert result.outcome is not Outcome.PASSED


def test_a_candidate_that_refuses_what_the_parent_answers_fails(registry, tmp_path):
    parent = engine_of(registry)
    _, result = compared(
        registry, tmp_path, engine_of(registry, status=400), parent, min_prefix_agreement=0.5
    )
    assert result.outcome is Outcome.FAILED
    assert result.unanswered.keys() == {"capital", "sum"}


def test_kept_answers_that_are_damaged_are_never_compared_with(registry, tmp_path):
    parent, candidate = engine_of(registry), engine_of(registry, ttft_s=0.001)
    compared(registry, tmp_path, candidate, parent, min_prefix_agreement=0.5)
    [link] = registry.engines.referrers(parent, ANSWERS_ARTIFACT)
    [layer] = registry.engines.manifest(link.manifest).layers
    named = (tmp_path / "registry").rglob(layer.digest.hex)
    [blob] = [path for path in named if path.is_file() and path.stat().st_size == layer.size]
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes().replace(b"Paris", b"Parma"))
    with pytest.raises(IntegrityError):
        compared(registry, tmp_path, candidate, parent, min_prefix_agreement=0.5)


def test_cases_are_taken_from_every_tag_in_turn():
    def case(name: str, tag: str) -> dict[str, Any]:
        return {
            "id": name,
            "tags": [tag],
            "messages": [{"role": "user", "content": name}],
            "checks": [{"kind": "contains", "all_of": ["x"]}],
        }

    suite = Suite.model_validate(
        {
            "name": "s",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 8},
            "cases": [case("a1", "a"), case("a2", "a"), case("a3", "a"), case("b1", "b")],
        }
    )
    assert [one.id for one in chosen_cases(suite, 3)] == ["a1", "b1", "a2"]
    assert len(chosen_cases(suite, None)) == 4
