"""A suite asked again under load: as many in flight as stated, compared with the first pass."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.differences import NoLive, rows
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.judge import judge_under_load
from engine_pipeline.gates.junit import to_junit
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, check_fits
from engine_pipeline.gates.report import CaseResult, Report
from engine_pipeline.gates.suite import Suite
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.gates.under_load import ask_under_load
from engine_pipeline.gates.under_load_result import UnderLoadResult
from engine_pipeline.progress import Silent
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput
from tests.unit.gates import report_samples
from tests.unit.gates.test_golden import case, suite


class Batching(ChatServer):
    """Answers otherwise to the named questions while more than one request is in flight."""

    def __init__(self, busy: dict[str, str], **behaviour: Any) -> None:
        super().__init__(Behaviour(answer="It is Paris.", ttft_s=0.02, **behaviour))
        self._alone = self.behaviour
        self._busy = Behaviour(answer="It is Paris.", ttft_s=0.02, answers=busy, **behaviour)

    async def _stream(self, body, behaviour, truth, writer):  # type: ignore[no-untyped-def]
        # A batch is formed once the others had the time to come.
        await asyncio.sleep(0.01)
        chosen = self._busy if self.in_flight > 1 else self._alone
        await super()._stream(body, chosen, truth, writer)


def policy(**bars: Any) -> GatePolicy:
    return GatePolicy.model_validate(
        {"suite": "demo", "quality": {"min_score": 0.9}, "under_load": {"concurrency": 4, **bars}}
    )


def both_passes(
    asked: Suite, server: ChatServer, wanted: GatePolicy, *, gone: Any = lambda: None
) -> tuple[tuple[CaseResult, ...], UnderLoadResult]:
    bars = wanted.under_load
    assert bars is not None

    async def act() -> tuple[tuple[CaseResult, ...], UnderLoadResult]:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            quiet = Silent()
            before = await ask_suite(client, asked, concurrency=1, progress=quiet, gone=gone)
            server.most_in_flight = 0
            return before, await ask_under_load(
                client,
                asked,
                bars,
                before,
                concurrency_before=1,
                progress=quiet,
                gone=gone,
            )

    return asyncio.run(act())


def findings(
    asked: Suite, server: ChatServer, wanted: GatePolicy
) -> dict[str, tuple[Outcome, str]]:
    before, result = both_passes(asked, server, wanted)
    return {f.name: (f.outcome, f.reason) for f in judge_under_load(result, before, wanted)}


def test_an_engine_that_answers_under_load_as_without_passes_and_says_so():
    asked = suite(*[case(f"c{n}") for n in range(6)])
    found = findings(asked, Batching({}), policy(min_agreement=1.0))
    assert {name: outcome for name, (outcome, _) in found.items()} == {
        "score under load": Outcome.PASSED,
        "same answers under load": Outcome.PASSED,
    }
    assert found["same answers under load"][1] == (
        "6 of 6 cases answered with the same words, 4 in flight against 1, want a share of at "
        "least 1.000"
    )


def test_answers_that_go_wrong_only_under_load_fail_by_name():
    asked = suite(*[case(f"c{n}") for n in range(6)])
    found = findings(asked, Batching({"question c2": "It is Rome."}), policy())
    outcome, reason = found["score under load"]
    assert outcome is Outcome.FAILED
    assert reason == (
        "0.833, want at least 0.900 (5 of 6 cases passed); passed before and not under load: c2"
    )
    assert found["same answers under load"] == (
        Outcome.SKIPPED,
        "5 of 6 cases answered with the same words, 4 in flight against 1; other words: c2; no bar "
        "is set, so it decides nothing",
    )


def test_the_score_under_load_has_a_bar_of_its_own_if_one_is_set():
    asked = suite(*[case(f"c{n}") for n in range(6)])
    found = findings(asked, Batching({"question c2": "It is Rome."}), policy(min_score=0.8))
    assert found["score under load"][0] is Outcome.PASSED


@pytest.mark.parametrize(("bar", "outcome"), [(0.8, Outcome.PASSED), (0.9, Outcome.FAILED)])
def test_other_words_that_are_right_are_held_to_the_bar_on_agreement_alone(bar, outcome):
    asked = suite(*[case(f"c{n}") for n in range(6)])
    found = findings(asked, Batching({"question c2": "Paris it is."}), policy(min_agreement=bar))
    assert found["score under load"][0] is Outcome.PASSED
    assert found["same answers under load"][0] is outcome


def test_a_case_that_must_pass_must_pass_under_load_too():
    asked = suite(*[case(f"c{n}", must=n == 2) for n in range(20)])
    found = findings(asked, Batching({"question c2": "It is Rome."}), policy())
    assert found["score under load"][0] is Outcome.PASSED
    assert found["must-pass cases under load"][0] is Outcome.FAILED


def test_the_number_in_flight_is_kept_up_for_a_single_case_by_asking_others():
    asked = suite(*[case(f"c{n}") for n in range(3)], case("asks", tags=["busy"]))
    server = Batching({})
    _, result = both_passes(asked, server, policy(tags=["busy"]))
    assert [one.id for one in result.cases] == ["asks"]
    assert (server.most_in_flight, result.most_in_flight, result.fillers) == (4, 4, 3)
    assert result.compared == 1


def test_each_repeat_is_compared_with_the_one_of_its_own_seed():
    class Seeded(ChatServer):
        async def _stream(self, body, behaviour, truth, writer):  # type: ignore[no-untyped-def]
            # The later seed is the faster one, so answers come in another order than asked.
            said = Behaviour(
                answer=f"It is Paris {body['seed']} .", ttft_s=0.05 - 0.01 * (body["seed"] - 40)
            )
            await super()._stream(body, said, truth, writer)

    asked = suite(case("a", repeats=4))
    _, result = both_passes(asked, Seeded(), policy())
    assert [one.text for one in result.cases[0].attempts] == [
        f"It is Paris {seed} ." for seed in range(40, 44)
    ]
    assert result.different == ()


def test_a_case_in_quarantine_is_asked_and_decides_nothing():
    held = {"owner": "Ada", "until": "2999-01-01", "reason": "under repair"}
    asked = suite(*[case(f"c{n}") for n in range(5)], case("held", quarantine=held))
    found = findings(asked, Batching({"question held": "It is Rome."}), policy(min_agreement=1.0))
    assert {outcome for outcome, _ in found.values()} == {Outcome.PASSED}


def test_what_could_not_be_compared_leaves_the_bar_open():
    asked = suite(*[case(f"c{n}") for n in range(4)])
    before, _ = both_passes(asked, Batching({}), policy())
    _, unreached = both_passes(asked, ChatServer(Behaviour(status=503)), policy())
    wanted = policy(min_agreement=0.5)
    found = {f.name: f.outcome for f in judge_under_load(unreached, before, wanted)}
    assert found == {
        "score under load": Outcome.ERRORED,
        "same answers under load": Outcome.ERRORED,
    }
    # A server that refuses is not asked in a circle to keep the number up.
    assert unreached.fillers <= 4


def test_nothing_is_asked_of_a_server_that_is_gone():
    asked = suite(case("a"), case("b"))
    _, result = both_passes(asked, Batching({}), policy(), gone=lambda: "the server crashed")
    assert [one.outcome for one in result.cases] == [Outcome.ERRORED] * 2
    assert (result.most_in_flight, result.compared) == (0, 0)


def test_a_policy_without_it_keeps_its_digest_and_one_with_it_has_another():
    plain = GatePolicy.model_validate({"suite": "demo", "quality": {"min_score": 0.9}})
    assert b"under_load" not in canonical_json(plain.model_dump(mode="json", exclude=plain._absent))
    assert policy().digest != plain.digest


def test_a_second_pass_that_is_no_heavier_than_the_first_is_refused():
    with pytest.raises(ValidationError, match="under_load has 4 in flight, the first pass has 4"):
        GatePolicy.model_validate({**policy().model_dump(mode="json"), "concurrency": 4})


def test_a_tag_that_no_case_has_is_refused():
    with pytest.raises(InvalidInput, match="no case with tag busy"):
        check_fits(policy(tags=["busy"]), suite(case("a")))


def test_every_face_of_a_report_tells_which_answers_were_others():
    asked = suite(*[case(f"c{n}") for n in range(6)])
    wanted = policy(min_agreement=0.9)
    server = Batching({"question c2": "It is Rome <b>."})
    before, result = both_passes(asked, server, wanted)
    made = report_samples.report(
        *judge_under_load(result, before, wanted), cases=before, policy=wanted, under_load=result
    )
    assert Report.model_validate_json(canonical_json(made)) == made
    markdown, page, xml = to_markdown(made), to_html(made, NoLive(reason="x")), to_junit([made])
    assert "5 of 6 cases were answered with the same words in both" in markdown
    assert "c2, passed before, failed under load: “It is Paris.” became" in markdown
    assert "“It is Rome &lt;b&gt;.”" in page
    assert "passed before and not under load: c2" in xml
    cells = {row.name: row.candidate for row in rows(made, NoLive(reason="x"))}
    assert (cells["score under load"], cells["same answers under load"]) == ("0.833", "5 of 6")
