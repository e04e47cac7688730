"""Two engines' answers side by side: where they part, and which partings matter."""

from __future__ import annotations

import math

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity import Pair, compare, path, tag_drops, to_force
from engine_pipeline.gates.parity_bars import ParityBars
from engine_pipeline.gates.parity_judge import judge_parity, sum_up
from engine_pipeline.gates.parity_result import DivergenceKind, ParityFinding
from engine_pipeline.gates.parity_stats import kl, margin, sign_test
from tests.unit.gates.parity_world import answer, step, words

BARS = ParityBars(
    parent="p", max_real_divergences=0.1, max_kl=0.1, min_top1_agreement=0.9, max_tag_drop=0.2
)


def measured(parent, candidate, forced=None, near_tie=0.5):
    return compare([Pair(parent=parent, candidate=candidate, forced=forced or {})], near_tie)


def findings(pairs, bars=BARS, tags=()) -> dict[str, ParityFinding]:
    measures, _ = compare(pairs, bars.near_tie_logprob)
    return {one.measure: one for one in judge_parity(measures, tags, bars)}


def test_equal_answers_have_no_divergence_and_no_distance():
    same = answer(step("It"), step(" is"), step(" so"))
    measures, divergences = measured(same, same)
    assert divergences == ()
    assert (measures.identical, measures.prefix_agreement, measures.kl) == (1, 1.0, 0.0)
    assert measures.top1_agreement == 1.0


def test_a_token_that_the_parent_held_nearly_as_likely_is_a_tie_break():
    parent = answer(step("It", Well=0.45), step(" is"))
    candidate = answer(step("Well", It=0.45), step(" then"))
    measures, [found] = measured(parent, candidate)
    assert found.kind is DivergenceKind.NEAR_TIE
    assert found.margin == pytest.approx(math.log(0.55 / 0.45), abs=1e-4)
    assert (measures.real, measures.near_ties) == (0, 1)
    assert measures.real_disagreements == 0


def test_a_token_that_the_parent_held_unlikely_is_a_change_of_mind():
    parent = answer(step("It"), step(" is", was=0.1))
    candidate = answer(step("It"), step("was", **{" is": 0.1}))
    measures, [found] = measured(parent, candidate)
    assert found.kind is DivergenceKind.REAL
    assert (found.at, found.of) == (1, 3)
    assert (found.shared, found.parent_token, found.candidate_token) == ("It", " is", "was")
    assert measures.real_disagreements == 1


def test_a_token_that_the_parent_does_not_list_is_at_least_as_unlikely_as_its_last():
    parent = step("It", Well=0.1, Oh=0.02)
    assert margin(parent, "Nonsense") == pytest.approx(math.log(0.88 / 0.02), abs=1e-4)


def test_what_follows_a_divergence_is_not_looked_at_unless_the_candidate_was_forced():
    parent = answer(step("a", b=0.45), step("c"), step("d", z=0.1))
    candidate = answer(step("b", a=0.45), step("x"), step("y"))
    assert measured(parent, candidate)[0].positions == 1
    forced = {1: step("c"), 2: step("z", d=0.01)}
    measures, _ = measured(parent, candidate, forced)
    assert (measures.positions, measures.forced) == (3, 2)
    assert measures.top1_agreement == pytest.approx(1 / 3, abs=1e-4)
    assert measures.real_disagreements == 1


def test_only_positions_behind_the_divergence_are_forced():
    parent = answer(*map(step, "abcdef"))
    assert to_force(parent, answer(*map(step, "abXdef")), 32) == range(3, 6)
    assert to_force(parent, answer(*map(step, "abXdef")), 4) == range(3, 4)
    assert list(to_force(parent, parent, 32)) == []
    assert list(to_force(parent, answer(*map(step, "abXdef")), 0)) == []


def test_an_answer_that_goes_on_where_the_parent_ended_parts_from_it():
    parent = answer(step("yes"), step("<2>", **{".": 0.1}), text="yes")
    candidate = answer(step("yes"), step("."), cut=True)
    _, [found] = measured(parent, candidate)
    assert (found.at, found.parent_token, found.candidate_token) == (1, "<2>", ".")
    assert found.kind is DivergenceKind.REAL


def test_an_end_that_the_server_does_not_list_counts_as_a_token():
    assert [one.token for one in path(answer(step("yes")))] == ["yes", "<end>"]
    assert [one.token for one in path(answer(step("yes"), cut=True))] == ["yes"]
    listed = answer(step("yes"), step("<2>"), text="yes")
    assert [one.token for one in path(listed)] == ["yes", "<2>"]


def test_without_tokens_words_are_compared_and_no_divergence_can_be_told_from_a_tie():
    measures, [found] = measured(words("It is so now"), words("It is not now"))
    assert measures.unit == "words"
    assert (found.at, found.kind) == (2, DivergenceKind.UNKNOWN)
    assert (measures.kl, measures.top1_agreement, measures.positions) == (None, None, 0)


def test_a_bar_without_its_measure_is_inconclusive_and_never_met():
    pairs = [Pair(parent=words("a b"), candidate=words("a c"), forced={})]
    found = findings(pairs)
    assert found["KL"].outcome is Outcome.INCONCLUSIVE
    assert found["top-1 agreement"].outcome is Outcome.INCONCLUSIVE
    assert found["real divergences"].outcome is Outcome.INCONCLUSIVE
    assert "gives no log probabilities" in found["KL"].reason


def test_a_measure_without_a_bar_is_told_and_decides_nothing():
    bars = ParityBars(parent="p", max_real_divergences=0.5)
    same = answer(step("a"))
    found = findings([Pair(parent=same, candidate=same, forced={})], bars)
    assert found["KL"].outcome is Outcome.SKIPPED
    assert "no bar" in found["KL"].reason
    assert sum_up(tuple(found.values()))[0] is Outcome.PASSED


def test_a_comparison_of_ties_alone_passes_and_one_of_changed_minds_fails():
    ties = [
        Pair(
            parent=answer(step("a", b=0.48), step("c"), case=f"c{n}"),
            candidate=answer(step("b", a=0.48), step("d"), case=f"c{n}"),
            forced={1: step("c")},
        )
        for n in range(10)
    ]
    bars = BARS.model_copy(update={"min_top1_agreement": 0.3})
    assert findings(ties, bars)["real divergences"].outcome is Outcome.PASSED
    minds = [
        Pair(
            parent=answer(step("a", b=0.02), step("c"), case=f"c{n}"),
            candidate=answer(step("b", a=0.02), step("d"), case=f"c{n}"),
            forced={1: step("q", c=0.01)},
        )
        for n in range(10)
    ]
    found = findings(minds, bars)
    assert {found[name].outcome for name in ("real divergences", "KL", "top-1 agreement")} == {
        Outcome.FAILED
    }


def test_kl_is_that_of_the_distributions_where_all_tokens_are_listed():
    found = kl(step("a", b=0.3), step("a", b=0.6))
    assert found == pytest.approx(0.7 * math.log(0.7 / 0.4) + 0.3 * math.log(0.3 / 0.6), abs=1e-4)


def test_kl_of_lists_without_a_common_token_is_large():
    assert kl(step("a", b=0.05), step("x", y=0.001)) > 4


def test_kl_with_tokens_cut_off_is_never_above_the_whole_one():
    parent = step("a", b=0.2, c=0.1, d=0.05)
    candidate = step("a", b=0.1, c=0.05, d=0.3)
    whole = kl(parent, candidate)
    for kept in (1, 2, 3):
        cut = [one.model_copy(update={"top": one.top[:kept]}) for one in (parent, candidate)]
        assert kl(*cut) <= whole + 1e-6


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    [(0, 0, 1.0), (1, 0, 0.5), (5, 0, 1 / 32), (4, 1, 6 / 32), (0, 3, 1.0), (8, 2, 56 / 1024)],
)
def test_the_sign_test_is_the_binomial_tail(lost, gained, p):
    assert sign_test(lost, gained) == pytest.approx(p)


def drops(lost: int, kept: int, gained: int = 0):
    parent = {f"l{n}": True for n in range(lost)} | {f"k{n}": True for n in range(kept)}
    mine = {f"l{n}": False for n in range(lost)} | {f"k{n}": True for n in range(kept)}
    parent |= {f"g{n}": False for n in range(gained)}
    mine |= {f"g{n}": True for n in range(gained)}
    return tag_drops(parent, mine, dict.fromkeys(parent, ("facts",)))


def test_a_fall_that_is_no_chance_fails_and_one_that_may_be_is_inconclusive():
    same = answer(step("a"))
    pairs = [Pair(parent=same, candidate=same, forced={})]
    assert findings(pairs, tags=drops(6, 4))["passed cases"].outcome is Outcome.FAILED
    thin = findings(pairs, tags=drops(2, 2))["passed cases"]
    assert thin.outcome is Outcome.INCONCLUSIVE
    assert "p 0.25" in thin.reason
    assert findings(pairs, tags=drops(1, 9))["passed cases"].outcome is Outcome.PASSED


def test_what_is_gained_makes_up_for_what_is_lost():
    every, facts = drops(3, 4, gained=3)
    assert (every.tag, every.drop, facts.tag) == (None, 0.0, "facts")
    assert every.p == pytest.approx(42 / 64, abs=1e-4)


def test_cases_that_only_one_side_answered_do_not_count():
    [every, _] = tag_drops({"a": True, "b": True}, {"a": True}, {"a": ("t",), "b": ("t",)})
    assert every.cases == 1


def test_real_divergences_are_told_first_and_the_clearest_of_them_on_top():
    def parted(case: str, other: float) -> Pair:
        return Pair(
            parent=answer(step("a", b=other), case=case),
            candidate=answer(step("b", a=other), case=case),
            forced={},
        )

    _, found = compare([parted("tie", 0.49), parted("mild", 0.2), parted("clear", 0.001)], 0.5)
    assert [one.case for one in found] == ["clear", "mild", "tie"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parent": "p"}, "without a bar"),
        ({"parent": ["p", "p"], "max_kl": 1}, "a parent twice"),
        ({"parent": [], "max_kl": 1}, "at least 1 item"),
        ({"parent": "p", "max_kl": 0}, "greater than 0"),
    ],
)
def test_bars_that_mean_nothing_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        ParityBars.model_validate(fields)


def test_one_parent_may_be_written_without_a_list():
    assert ParityBars.model_validate({"parent": "prod", "max_kl": 1}).parent == ("prod",)


def test_bars_are_read_as_channels_yaml_is():
    text = '{"parent": ["m/t-fp16", "prod"], "max_kl": 0.02}'
    assert ParityBars.model_validate_json(text, strict=True).parent == ("m/t-fp16", "prod")
