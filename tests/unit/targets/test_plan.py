"""In which order a server is told to load and unload."""

from __future__ import annotations

from itertools import product

import pytest

from engine_pipeline.targets.triton.engine_models import ENGINE_MODELS
from engine_pipeline.targets.triton.plan import MANAGED, Verb, plan_calls


def ready(**versions: int) -> dict[str, frozenset[int]]:
    return {name: frozenset({version}) for name, version in versions.items()}


ALL_OLD = ready(**dict.fromkeys(ENGINE_MODELS, 1))
LOAD_ALL = [f"load {model}" for model in ENGINE_MODELS]


def plan(found, models=ENGINE_MODELS, generation=2, *, entries_off=False, replace=False):
    calls = plan_calls(found, models, generation, entries_off=entries_off, replace=replace)
    return [f"{call.verb.value} {call.model}" for call in calls]


def test_an_empty_server_loads_the_engine_first_and_the_entry_last():
    assert plan({}) == LOAD_ALL
    assert LOAD_ALL[0] == "load tensorrt_llm"
    assert LOAD_ALL[-1] == "load ensemble"


def test_a_server_that_is_there_is_told_nothing():
    assert plan(ready(**dict.fromkeys(ENGINE_MODELS, 2))) == []


def test_nothing_is_unloaded_while_the_old_one_can_go_on():
    assert plan(ALL_OLD) == LOAD_ALL


def test_what_clients_call_goes_off_first_where_the_tokenizer_changes():
    assert plan(ALL_OLD, entries_off=True) == [
        "unload ensemble",
        "unload tensorrt_llm_bls",
        *LOAD_ALL,
    ]


def test_replacing_unloads_everything_before_anything_is_loaded():
    calls = plan(ALL_OLD, replace=True)
    assert calls[:2] == ["unload ensemble", "unload tensorrt_llm_bls"]
    assert calls[5:] == LOAD_ALL
    assert len(calls) == 10


def test_only_what_is_missing_is_loaded():
    found = ready(tensorrt_llm=2, preprocessing=2, postprocessing=1)
    assert plan(found) == ["load postprocessing", "load tensorrt_llm_bls", "load ensemble"]


def test_what_the_new_engine_has_no_use_for_serves_until_the_new_one_is_there():
    assert plan(ALL_OLD, models=("tensorrt_llm",)) == [
        "load tensorrt_llm",
        "unload ensemble",
        "unload tensorrt_llm_bls",
        "unload preprocessing",
        "unload postprocessing",
    ]


def test_a_model_loaded_in_two_versions_is_brought_to_one():
    assert plan({"tensorrt_llm": frozenset({1, 2})}, models=("tensorrt_llm",)) == [
        "load tensorrt_llm"
    ]


def test_models_of_other_people_are_left_alone():
    assert plan(ready(resnet=1), models=()) == []


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_from_any_state_following_the_plan_ends_where_it_should(off, replace):
    choices = (frozenset(), frozenset({1}), frozenset({2}))
    for states in product(choices, repeat=len(MANAGED)):
        now = dict(zip(MANAGED, states, strict=True))
        for models in ((), ("tensorrt_llm",), ENGINE_MODELS):
            server = dict(now)
            for call in plan_calls(server, models, 2, entries_off=off, replace=replace):
                server[call.model] = frozenset({2}) if call.verb is Verb.LOAD else frozenset()
            wanted = {m: frozenset({2}) if m in models else frozenset() for m in MANAGED}
            assert server == wanted, (now, models)
