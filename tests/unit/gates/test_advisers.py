"""Checks that others decide: a judge that answers, is undecided or gone; code that is run."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.gates.chat import Message
from engine_pipeline.gates.check import Answer
from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.consult import Advisers
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.judge_model import (
    PROMPT,
    RESPONSE_FORMAT,
    JudgeModel,
    JudgeUsed,
    Vote,
    count_votes,
    read_vote,
)
from engine_pipeline.gates.llm_judge import LlmJudge
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, check_fits
from engine_pipeline.gates.python_check import resolve_checks, run_check
from engine_pipeline.gates.report import CaseResult
from engine_pipeline.gates.suite import Suite
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.progress import Silent
from engine_registry.errors import InvalidInput, NotFound

YES = '{"reason": "it says so", "verdict": "yes"}'
NO = '{"reason": "it does not", "verdict": "no"}'
KEY = "judge-key-0123456789"
QUESTION = "Does it name the capital?"


def suite(*checks: dict[str, Any], **changes: Any) -> Suite:
    return Suite.model_validate(
        {
            "name": "demo",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 40, "max_tokens": 8},
            "cases": [
                {
                    "id": "a",
                    "tags": ["facts"],
                    "messages": [{"role": "user", "content": "Capital?"}],
                    "checks": list(checks),
                    **changes,
                }
            ],
        }
    )


def judged(
    judge: ChatServer | None, *, votes: int = 1, answer: str = "It is Paris."
) -> tuple[CaseResult, JudgeUsed]:
    candidate = ChatServer(Behaviour(answer=answer))
    wanted = suite({"kind": "judge", "question": QUESTION, "votes": votes})

    async def act() -> tuple[CaseResult, JudgeUsed]:
        async with candidate.listening() as url, (judge or ChatServer()).listening() as there:
            # Port 9 of this machine: nobody listens.
            where = there if judge else "http://127.0.0.1:9"
            model = JudgeModel(endpoint=where, model="big", timeout_s=5)
            asked = LlmJudge(model, Endpoint(base_url=where, model="big", api_key=KEY))
            async with ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client, asked:
                [case] = await ask_suite(
                    client,
                    wanted,
                    concurrency=1,
                    progress=Silent(),
                    gone=lambda: None,
                    advisers=Advisers(judge=asked),
                )
            return case, asked.used()

    return asyncio.run(act())


def test_the_judge_is_told_question_and_answer_as_data_and_decides():
    server = ChatServer(Behaviour(answer=YES))
    case, used = judged(server)
    assert case.outcome is Outcome.PASSED
    verdict = case.attempts[0].checks[-1]
    assert verdict.reason == "the judge says yes (1 yes, 0 no of 1): it says so"
    [truth] = server.truths
    system, user = truth.body["messages"]
    assert system == {"role": "system", "content": PROMPT}
    assert json.loads(user["content"]) == {
        "conversation": [{"role": "user", "content": "Capital?"}],
        "answer": "It is Paris.",
        "question": QUESTION,
    }
    assert truth.body["response_format"] == RESPONSE_FORMAT
    assert truth.body["temperature"] == 0
    assert (used.model, used.asked, used.unanswered, used.prompt) == ("big", 1, 0, PROMPT)


def test_a_judge_that_says_no_fails_the_case():
    case, _ = judged(ChatServer(Behaviour(answer=NO)))
    assert case.outcome is Outcome.FAILED
    assert case.attempts[0].checks[-1].reason.endswith("(0 yes, 1 no of 1): it does not")


@pytest.mark.parametrize(
    "server",
    [
        None,
        ChatServer(Behaviour(answer="Sure, looks good to me!")),
        ChatServer(Behaviour(answer='{"reason": "hm", "verdict": "unclear"}')),
        ChatServer(Behaviour(status=503)),
        ChatServer(Behaviour(answer=YES), api_key="another-key"),
    ],
    ids=["gone", "prose", "unclear", "busy", "wrong-key"],
)
def test_a_judge_that_does_not_decide_errors_the_case_and_never_fails_it(server):
    case, used = judged(server)
    assert case.outcome is Outcome.ERRORED
    assert used.unanswered == 1
    assert KEY not in case.model_dump_json()


def test_an_answer_that_failed_already_is_not_put_to_the_judge():
    server = ChatServer(Behaviour(answer=YES))
    case, _ = judged(server, answer=" ")
    assert case.outcome is Outcome.FAILED
    assert not server.truths


def test_a_judge_that_takes_no_schema_is_asked_without():
    server = ChatServer(Behaviour(answer=YES, refused_field="response_format"))
    case, used = judged(server, votes=3)
    assert case.outcome is Outcome.PASSED
    assert ["response_format" in t.body for t in server.truths] == [True, False, False, False]
    assert used.asked == 3


def test_every_vote_is_drawn_anew():
    server = ChatServer(Behaviour(answer=YES))
    judged(server, votes=3)
    assert [t.body["seed"] for t in server.truths] == [7, 8, 9]
    assert [t.body["temperature"] > 0 for t in server.truths] == [False, True, True]


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ([True], True),
        ([True, False, True], True),
        ([False, False, None], False),
        ([True, False, None], None),
        ([True, None, None], None),
    ],
)
def test_most_of_all_votes_decide_and_missing_ones_count_for_nobody(votes, verdict):
    assert count_votes([Vote(yes=yes, reason="r") for yes in votes])[0] is verdict


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        (YES, True),
        (f"```json\n{NO}\n```", False),
        ('{"verdict": "yes"}', None),
        ('{"reason": "x", "verdict": "YES"}', None),
        (f"{YES} {NO}", None),
        ("yes", None),
    ],
)
def test_only_a_verdict_is_read_as_one(text, yes):
    assert read_vote(text).yes is yes


def test_a_suite_with_questions_needs_a_gate_with_a_judge():
    policy = {"suite": "demo", "quality": {"min_score": 1.0}}
    asked = suite({"kind": "judge", "question": QUESTION})
    with pytest.raises(InvalidInput, match="leaves a to a judge, the gate names none"):
        check_fits(GatePolicy.model_validate(policy), asked)
    judge = {"endpoint": "http://judge.test/v1", "model": "big"}
    check_fits(GatePolicy.model_validate({**policy, "judge": judge}), asked)


def test_the_judge_is_in_the_policys_digest_and_its_absence_is_not():
    def digest(**changes: Any) -> str:
        policy = {"suite": "demo", "quality": {"min_score": 1.0}, **changes}
        return str(GatePolicy.model_validate(policy).digest)

    judge = {"endpoint": "http://judge.test", "model": "big"}
    assert len({digest(), digest(judge=judge), digest(judge=judge | {"model": "small"})}) == 3
    # As it was before there were judges and weights.
    assert digest() == ("sha256:97c246786f8b1fc2743c38665c84dfe4c109fe5eccbbbf84de07b52494829aba")


FEES = """
    import os, sys, time

    def names_the_fee(answer, *, fee="15"):
        print("chatter that is no verdict")
        return None if fee in answer["text"] else f"want {fee} in it, got {answer['text']!r}"

    def says(answer, *, what):
        return {"true": True, "false": False, "none": None, "number": 3, "empty": ""}[what]

    def raises(answer):
        raise KeyError("fee")

    def exits(answer):
        os._exit(3)

    def hangs(answer):
        time.sleep(600)

    def seen(answer):
        return f"{answer['case']} {answer['tags']} {answer['tool_calls']} {answer['finish_reason']}"
"""
NAMES = ("names_the_fee", "says", "raises", "exits", "hangs", "seen")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of installed packages with one that declares checks."""
    site = tmp_path / "site"
    package = site / "billing_checks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "fees.py").write_text(textwrap.dedent(FEES))
    info = site / "billing_checks-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: billing-checks\nVersion: 1.2\n")
    points = "".join(f"{name} = billing_checks.fees:{name}\n" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[engine_ci.checks]\n{points}")
    (info / "RECORD").write_text("billing_checks/__init__.py,,\nbilling_checks/fees.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def python(name: str, **changes: Any) -> dict[str, Any]:
    return {"kind": "python", "entry_point": f"billing_checks.fees:{name}", **changes}


def run(name: str, text: str = "15 dollars", timeout_s: float = 20, **options: Any) -> Any:
    [code] = resolve_checks(suite(python(name))).values()
    answer = {"text": text, "finish_reason": "stop", "tool_calls": [], "case": "a", "tags": ["t"]}
    return asyncio.run(run_check(code, options, answer, timeout_s=timeout_s))


def test_code_of_an_installed_package_decides_and_is_pinned(site):
    assert run("names_the_fee") == (True, "as wanted")
    assert run("names_the_fee", fee="20") == (False, "want 20 in it, got '15 dollars'")
    assert run("seen") == (False, "a ['t'] [] stop")
    [code] = resolve_checks(suite(python("names_the_fee"))).values()
    assert (code.distribution, code.version, code.editable) == ("billing-checks", "1.2", False)
    assert "path" not in code.model_dump()
    (site / "billing_checks" / "fees.py").write_text("def names_the_fee(answer): return None\n")
    [other] = resolve_checks(suite(python("names_the_fee"))).values()
    assert other.code != code.code
    with pytest.raises(InvalidInput, match="the suite wants"):
        resolve_checks(suite(python("names_the_fee", code=str(code.code))))


@pytest.mark.parametrize(
    ("name", "options", "passed", "reason"),
    [
        ("says", {"what": "true"}, True, "as wanted"),
        ("says", {"what": "false"}, False, "says no"),
        ("says", {"what": "number"}, None, "returned int, want None"),
        ("says", {"what": "empty"}, None, "returned str, want None"),
        ("says", {"how": "wrong"}, None, "raised TypeError"),
        ("raises", {}, None, "raised KeyError: 'fee'"),
        ("exits", {}, None, "ended with code 3 and said nothing"),
    ],
)
@pytest.mark.usefixtures("site")
def test_code_that_cannot_say_has_not_failed_the_engine(name, options, passed, reason):
    found, said = run(name, **options)
    assert found is passed
    assert reason in said


@pytest.mark.usefixtures("site")
def test_code_that_hangs_is_ended():
    assert run("hangs", timeout_s=0.3) == (
        None,
        "billing_checks.fees:hangs has not answered within 0.3 s",
    )


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("entry_point", ["os:system", "billing_checks.fees:main", "pip:main"])
def test_a_suite_calls_nothing_that_no_package_declares_as_a_check(entry_point):
    with pytest.raises(NotFound, match="no installed package declares"):
        resolve_checks(suite({"kind": "python", "entry_point": entry_point}))


def test_a_folder_of_the_same_name_in_the_way_is_refused(site, tmp_path, monkeypatch):
    shadow = tmp_path / "shadow" / "billing_checks"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("")
    (shadow / "fees.py").write_text("def names_the_fee(answer): return None\n")
    monkeypatch.syspath_prepend(str(shadow.parent))
    sys.path_importer_cache.clear()
    with pytest.raises(InvalidInput, match="which that package did not install"):
        resolve_checks(suite(python("names_the_fee")))


@pytest.mark.usefixtures("site")
def test_a_case_is_judged_by_code_in_the_course_of_asking():
    wanted = suite(python("names_the_fee", options={"fee": "20"}))
    server = ChatServer(Behaviour(answer="15 dollars"))

    async def act() -> CaseResult:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            [case] = await ask_suite(
                client,
                wanted,
                concurrency=1,
                progress=Silent(),
                gone=lambda: None,
                advisers=Advisers(code=resolve_checks(wanted)),
            )
            return case

    case = asyncio.run(act())
    assert case.outcome is Outcome.FAILED
    assert case.attempts[0].checks[-1].reason == "want 20 in it, got '15 dollars'"


def test_without_anybody_to_ask_a_case_is_errored_and_says_so():
    wanted = suite({"kind": "judge", "question": QUESTION})
    [case] = wanted.cases
    [verdict] = asyncio.run(Advisers().verdicts(case, Answer(text="x")))
    assert (verdict.passed, verdict.errored, verdict.reason) == (
        False,
        True,
        "there is no judge here",
    )
    assert Message(role="user", content="x").model_dump() == {"role": "user", "content": "x"}
