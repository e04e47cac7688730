"""The requests of a workload: the same from the same seed, at their times, of their lengths."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.workload.model import Workload, describe
from engine_pipeline.workload.requests import Planned, Tokeniser, fitted, planned, text


def workload(**changes: Any) -> Workload:
    return Workload.model_validate(
        {
            "name": "w",
            "prompt_tokens": {"kind": "uniform", "low": 50, "high": 150},
            "output_tokens": {"kind": "fixed", "tokens": 8},
            "arrival": {"kind": "poisson", "rate_per_s": 10},
            "requests": 200,
            **changes,
        }
    )


def test_the_same_workload_gives_the_same_requests_and_another_seed_others():
    assert list(planned(workload())) == list(planned(workload()))
    assert list(planned(workload())) != list(planned(workload(seed=2)))
    assert workload().digest != workload(seed=2).digest


def test_poisson_requests_come_at_their_rate_and_by_chance():
    times = [one.at_s for one in planned(workload(requests=4000))]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.06)
    # Of an exponential distribution, deviation and mean are one.
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_every_seed_offers_the_stated_rate(seed):
    times = [one.at_s for one in planned(workload(requests=60, seed=seed))]
    assert 60 / times[-1] == pytest.approx(10, rel=0.1)


def test_bursts_come_together_and_keep_the_rate():
    arrival = {"kind": "bursts", "rate_per_s": 10, "size": 5}
    times = [one.at_s for one in planned(workload(arrival=arrival, requests=4000))]
    assert len(set(times)) == 800
    assert times[-1] == pytest.approx(400, rel=0.1)


def test_a_duration_ends_a_load_that_comes_at_times():
    requests = list(planned(workload(requests=None, duration_s=20)))
    assert all(one.at_s <= 20 for one in requests)
    assert len(requests) == 200


def test_requests_of_a_closed_loop_have_no_times_and_no_two_steps_share_a_prompt():
    closed = workload(arrival={"kind": "concurrency", "steps": [1, 4]}, requests=20)
    first, second = list(planned(closed, 0)), list(planned(closed, 1))
    assert {one.at_s for one in first} == {None}
    assert not {one.index for one in first} & {one.index for one in second}


def prompt(tokens: int, index: int = 0, **fields: Any) -> str:
    request = Planned(index=index, at_s=None, prompt_tokens=tokens, output_tokens=1, **fields)
    return text(request, "lane-", Tokeniser())


def test_prompts_are_as_long_as_asked_for():
    for tokens in (8, 100, 70_000):
        assert len(prompt(tokens).split()) == pytest.approx(tokens, abs=3)


def test_a_tokeniser_is_fitted_from_two_prompts_of_different_length():
    # 20 tokens of template and 1.5 tokens a word.
    found = fitted((24, 56), (120, 200))
    assert (found.template_tokens, found.tokens_per_word) == (20, 1.5)
    assert found.words(170) == 100
    assert found.is_known


@pytest.mark.parametrize("counted", [(50, 40), (50, 50), (50, 100_000)])
def test_counts_that_make_no_sense_fit_nothing(counted):
    assert fitted((24, counted[0]), (120, counted[1])) == Tokeniser()


def test_no_two_prompts_begin_alike_unless_they_share_a_prefix():
    prompts = [prompt(50, index) for index in range(100)]
    assert len({one.split()[0] for one in prompts}) == 100


def test_a_shared_prefix_is_as_long_as_its_share_and_its_rest_is_each_prompts_own():
    shared = workload(shared_prefix={"share": 0.6}, requests=50)
    prompts = [text(one, "lane-", Tokeniser()) for one in planned(shared)]
    shortest = min(prompts, key=len)
    for other in set(prompts) - {shortest}:
        alike = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(shortest, other, strict=False)
        )
        assert len(list(alike)) / len(shortest) == pytest.approx(0.6, abs=0.1)
    assert len(set(prompts)) == 50


def test_each_of_several_prefixes_is_used():
    shared = workload(shared_prefix={"share": 0.5, "prefixes": 3})
    assert {one.prefix for one in planned(shared)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"duration_s": 3}, "either requests or duration_s"),
        ({"requests": None}, "either requests or duration_s"),
        ({"arrival": {"kind": "concurrency", "steps": [4, 2]}}, "not in ascending order"),
        ({"arrival": {"kind": "concurrency", "steps": [300]}}, "cannot keep 300 in flight"),
        (
            {
                "requests": None,
                "duration_s": 2,
                "arrival": {"kind": "poisson", "rate_per_s": 0.1},
            },
            "hold none",
        ),
        ({"arrival": {"kind": "bursts", "rate_per_s": 1, "size": 1}}, "greater than or equal to 2"),
    ],
)
def test_a_load_that_cannot_be_made_is_refused(changes, says):
    with pytest.raises(ValidationError, match=says):
        workload(**changes)


def test_words_say_what_a_workload_is():
    said = dict(describe(workload(shared_prefix={"share": 0.5, "prefixes": 3})))
    assert said["arrival"] == "10 requests/s, Poisson"
    assert said["shared"] == "the first 50% of each prompt, 3 different ones"
    assert said["measured"] == "200 requests"
