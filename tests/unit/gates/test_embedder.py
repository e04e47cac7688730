"""Checks of kind `similar`: an embedding model that answers, that cannot, and that is not there."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager, nullcontext
from datetime import date
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from engine_pipeline.gates.advising import Advice, advisers_of
from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.differences import NoLive
from engine_pipeline.gates.embedder import EmbeddingPlace
from engine_pipeline.gates.embedding_model import (
    EmbeddingsUsed,
    HostedEmbeddings,
    LocalEmbeddings,
)
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, check_fits
from engine_pipeline.gates.report import CaseResult, Report
from engine_pipeline.gates.report_schema import report_schema
from engine_pipeline.gates.suite import Case
from engine_pipeline.gates.suite_jsonl import read_line, write_line
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput
from tests.servers.embeddings import WIDTH, Embeddings, embeddings
from tests.unit.gates import report_samples as samples
from tests.unit.gates.test_advisers import suite

KEY = "embed-key-0123456789"
SAID = "Paris is the capital of France."
NEAR = "The capital of France is Paris."
TODAY = date(2026, 12, 1)
GONE = "http://127.0.0.1:9"  # of this machine; nobody listens


def near(to: Any = SAID, at_least: float = 0.8, **changes: Any) -> dict[str, Any]:
    return {"kind": "similar", "at_least": at_least, **({"to": to} if to else {}), **changes}


def judged(
    server: Embeddings | None,
    *checks: dict[str, Any],
    answer: str = NEAR,
    model: dict[str, Any] | None = None,
    **case: Any,
) -> tuple[CaseResult, EmbeddingsUsed]:
    """What comes of one case whose answer is known."""
    candidate = ChatServer(Behaviour(answer=answer))
    wanted = suite(*(checks or (near(),)), **{"sampling": {"max_tokens": 64}, **case})

    async def act(where: str) -> tuple[CaseResult, EmbeddingsUsed]:
        hosted = HostedEmbeddings.model_validate(
            {"endpoint": where, "model": "small", "timeout_s": 5, **(model or {})}
        )
        endpoint = Endpoint(base_url=where, model="small", api_key=KEY)
        advice = Advice(today=TODAY, embeddings=EmbeddingPlace(serve=lambda: nullcontext(endpoint)))
        async with (
            candidate.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            async with advisers_of(advice, None, hosted) as advisers:
                [result] = await ask_suite(
                    client,
                    wanted,
                    concurrency=1,
                    progress=Silent(),
                    gone=lambda: None,
                    advisers=advisers,
                )
            used = advisers.embeddings_used()
        assert used is not None
        return result, used

    if server is None:
        return asyncio.run(act(GONE))
    with embeddings(server) as (url, _):
        return asyncio.run(act(url))


def verdict(case: CaseResult) -> Any:
    return case.attempts[0].checks[-1]


def test_an_answer_in_other_words_passes_and_the_report_holds_how_near_it_came():
    server = Embeddings()
    case, used = judged(server)
    assert case.outcome is Outcome.PASSED
    found = verdict(case)
    assert (found.kind, found.passed, found.errored) == ("similar", True, False)
    assert found.similarity.model_dump() == {"value": 1.0, "at_least": 0.8}
    assert found.reason == f"similarity 1.0000 to {SAID!r}, want at least 0.8"
    assert [body["input"] for body in server.asked] == [SAID, NEAR]
    assert {body["model"] for body in server.asked} == {"small"}
    assert used.model_dump(exclude={"endpoint"}) == {
        "model": "small",
        "digest": None,
        "pooling": None,
        "runtime": None,
        "named_itself": ("words-64",),
        "dimension": WIDTH,
        "asked": 2,
        "unanswered": 0,
    }


def test_an_answer_about_something_else_fails_with_both_sides():
    case, _ = judged(Embeddings(), answer="Bananas are yellow.", must=True)
    assert case.outcome is Outcome.FAILED
    assert verdict(case).reason == (
        f"similarity 0.0000 to {SAID!r}, want at least 0.8, got 'Bananas are yellow.'"
    )


def test_the_nearest_of_several_references_counts():
    case, used = judged(Embeddings(), near([SAID, "Bananas are yellow."]), answer="bananas yellow")
    assert case.outcome is Outcome.PASSED
    assert "to 'Bananas are yellow.'" in verdict(case).reason
    assert used.asked == 3


def test_without_a_text_the_recorded_answer_is_the_reference():
    recorded = {"text": SAID, "agreement": 1.0, "n": 5}
    server = Embeddings()
    case, _ = judged(server, near(to=None), recorded=recorded)
    assert case.outcome is Outcome.PASSED
    assert server.asked[0]["input"] == SAID


def test_a_reference_is_embedded_once_and_the_same_text_is_never_asked_again():
    server = Embeddings()
    case, used = judged(server, answer=SAID, repeats=3)
    assert case.score == 1.0
    assert [check.similarity.value for a in case.attempts for check in a.checks[-1:]] == [1.0] * 3
    assert used.asked == len(server.asked) == 1


def test_a_case_scores_the_share_of_its_answers_that_were_near_enough():
    server = Embeddings(vectors={SAID: [1.0, 0.0], NEAR: [0.6, 0.8]})
    reached, _ = judged(server, near(at_least=0.6), repeats=2)
    missed, _ = judged(server, near(at_least=0.6001), repeats=2)
    assert (reached.score, missed.score) == (1.0, 0.0)


def test_a_prefix_stands_before_both_texts():
    server = Embeddings()
    judged(server, model={"prefix": "query: "})
    assert [body["input"] for body in server.asked] == [f"query: {SAID}", f"query: {NEAR}"]


def test_one_text_has_one_form_however_its_characters_are_encoded():
    server = Embeddings()
    judged(
        server,
        near("cafe\N{COMBINING ACUTE ACCENT}"),
        answer="caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    )
    assert len({body["input"] for body in server.asked}) == 1


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (None, "the embedding model does not answer: /v1/embeddings: ClientConnectorError"),
        (Embeddings(status=503), "the embedding model does not answer: /v1/embeddings: HTTP 503"),
        (Embeddings(api_key="another-key-01234"), "does not answer: /v1/embeddings: HTTP 401"),
        (Embeddings(most_chars=5), f"does not take the reference, {len(SAID)} characters: /v1"),
        (Embeddings(raw="[]"), "not an answer of this API"),
        (Embeddings(raw="pong"), "not an answer of this API"),
        (Embeddings(vectors={SAID: [0.0] * 3}), "of the reference: all of its 3 numbers are zero"),
        (Embeddings(vectors={NEAR: [1.0, None]}), "of the answer: number 2 of 2 is null"),
        (Embeddings(vectors={NEAR: [1.0, KEY]}), "of the answer: number 2 of 2 is '***"),
        (
            Embeddings(vectors={SAID: [1.0] * 3, NEAR: [1.0] * 2}),
            "the embedding of the answer has 2 numbers, those before it had 3: another model",
        ),
    ],
    ids=[
        "gone",
        "busy",
        "wrong-key",
        "too-long",
        "no-object",
        "no-json",
        "zero",
        "not-finite",
        "key",
        "other-size",
    ],
)
def test_a_model_that_cannot_say_errors_the_case_and_never_fails_it(server, why):
    case, used = judged(server)
    assert case.outcome is Outcome.ERRORED
    found = verdict(case)
    assert why in found.reason
    assert "\n" not in found.reason
    assert found.similarity is None
    assert used.unanswered == 1
    for text in (case.model_dump_json(), used.model_dump_json()):
        assert KEY not in text
        assert KEY[:8] not in text


def test_an_answer_without_words_is_no_answer_and_nobody_is_asked():
    server = Embeddings()
    assert judged(server, answer=" ")[0].outcome is Outcome.FAILED
    [case] = suite(near()).cases
    call = [{"name": "time", "arguments": "{}"}]
    answer = Answer.model_validate({"text": "", "tool_calls": call})

    async def act() -> Any:
        place = EmbeddingPlace(serve=lambda: nullcontext(Endpoint(base_url=GONE, model="m")))
        model = HostedEmbeddings(endpoint=GONE, model="m")
        async with advisers_of(Advice(today=TODAY, embeddings=place), None, model) as advisers:
            return await advisers.verdicts(case, answer)

    [found] = asyncio.run(act())
    assert (found.passed, found.errored) == (False, False)
    assert found.reason == f"want a text near {SAID!r}, got none"
    assert not server.asked


def test_an_answer_that_failed_already_is_not_embedded():
    server = Embeddings()
    judged(server, {"kind": "contains", "all_of": ["London"]}, near())
    assert not server.asked


def test_a_model_that_cannot_be_started_errors_each_check_with_its_reason():
    @contextmanager
    def broken() -> Any:
        raise InvalidInput("tiny.gguf: llama.cpp cannot load it", hint="x")
        yield

    model = LocalEmbeddings(file="models/tiny.gguf", digest=Digest.of(b""))
    place = EmbeddingPlace(serve=broken, pooling="cls", runtime="runtime 1")
    [case] = suite(near()).cases

    async def act() -> Any:
        async with advisers_of(Advice(today=TODAY, embeddings=place), None, model) as advisers:
            found = await advisers.verdicts(case, Answer(text=NEAR))
        return found, advisers.embeddings_used()

    [found], used = asyncio.run(act())
    assert found.errored
    assert found.reason == "there is no embedding model: tiny.gguf: llama.cpp cannot load it"
    assert (used.model, used.digest, used.pooling, used.runtime) == (
        "tiny.gguf",
        Digest.of(b""),
        "cls",
        "runtime 1",
    )


def test_where_no_model_is_named_the_check_stays_open():
    [case] = suite(near()).cases

    async def act() -> Any:
        async with advisers_of(Advice(today=TODAY), None) as advisers:
            return await advisers.verdicts(case, Answer(text=NEAR))

    [found] = asyncio.run(act())
    assert (found.errored, found.reason) == (True, "there is no embedding model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checks": [near(to=None)]}, r"similar to what\? give it `to`"),
        (
            {"checks": [near(to=None)], "recorded": {"text": " ", "agreement": 1, "n": 1}},
            "similar to what",
        ),
        ({"checks": [near(at_least=0)]}, "greater than 0"),
        ({"checks": [near(at_least=1.01)]}, "less than or equal to 1"),
        ({"checks": [near(to=[""])]}, "at least 1 character"),
        ({"checks": [near(to=7)]}, "valid tuple"),
    ],
)
def test_a_check_that_compares_with_nothing_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        suite(**changes)


def test_others_judge_a_case_without_its_similar_checks():
    [case] = suite(near()).cases
    assert [found.kind for found in judge_all(case.checks, Answer(text="x"))] == ["not-degenerate"]


POLICY = {"suite": "demo", "quality": {"min_score": 1.0}}
HOSTED = {"endpoint": "http://embed.test/v1", "model": "small"}
LOCAL = {"file": "models/small.gguf", "digest": str(Digest.of(b"x"))}


def test_a_suite_that_compares_needs_a_gate_with_a_model():
    asked = suite(near())
    with pytest.raises(InvalidInput, match="compares a by embeddings, the gate names no") as caught:
        check_fits(GatePolicy.model_validate(POLICY), asked)
    assert caught.value.name == "gate-without-embeddings"
    for model in (HOSTED, LOCAL):
        check_fits(GatePolicy.model_validate({**POLICY, "embeddings": model}), asked)


def test_the_model_is_in_the_policys_digest_and_its_absence_is_not():
    models = [
        HOSTED,
        HOSTED | {"model": "large"},
        HOSTED | {"prefix": "query: "},
        LOCAL,
        LOCAL | {"pooling": "cls"},
        LOCAL | {"digest": str(Digest.of(b"y"))},
    ]
    found = {GatePolicy.model_validate({**POLICY, "embeddings": one}).digest for one in models}
    assert len(found) == len(models)
    assert GatePolicy.model_validate({**POLICY, "embeddings": None}).digest == (
        Digest.parse("sha256:97c246786f8b1fc2743c38665c84dfe4c109fe5eccbbbf84de07b52494829aba")
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"file": "a.gguf"}, "digest"),
        ({"model": "m"}, "endpoint"),
        (HOSTED | LOCAL, "Extra inputs"),
        (HOSTED | {"endpoint": "http://u:p@x/v1"}, "pattern"),
        (HOSTED | {"api_key_env": "sk-0123"}, "pattern"),
        (LOCAL | {"pooling": "none"}, "mean"),
    ],
)
def test_a_model_is_at_an_endpoint_or_in_a_pinned_file(model, message):
    with pytest.raises(ValidationError, match=message):
        GatePolicy.model_validate({**POLICY, "embeddings": model})


def reported(*cases: CaseResult, used: EmbeddingsUsed) -> Report:
    return Report.model_validate(
        {**samples.report().model_dump(), "cases": cases, "embeddings": used}
    )


def test_reports_say_which_model_it_was_and_how_near_each_answer_came():
    passed, used = judged(Embeddings(vectors={SAID: [1.0, 0.0], NEAR: [0.96, 0.28]}))
    report = reported(passed, used=used)
    jsonschema.Draft202012Validator(report_schema()).validate(json.loads(canonical_json(report)))
    assert Report.model_validate_json(canonical_json(report)) == report
    text = to_markdown(report)
    assert "## Similarity to references" in text
    assert "| a    | 0.9600     | 0.8      | passed  |" in text
    assert "small at http" in text
    page = to_html(report, NoLive(reason="x"))
    assert "similar: similarity 0.9600 to" in page
    assert "2 numbers; 2 texts, 0 without an embedding" in page


def test_reports_name_a_file_with_its_digest_pooling_and_runtime():
    used = EmbeddingsUsed(
        model="small.gguf",
        digest=Digest.of(b"x"),
        pooling="cls",
        runtime="runtime 1",
        dimension=384,
    )
    passed, _ = judged(Embeddings())
    page = to_html(reported(passed, used=used), NoLive(reason="x"))
    assert f"small.gguf {Digest.of(b'x').short}, cls pooling, runtime 1; 384 numbers" in page


def test_verdicts_that_measure_nothing_are_stored_as_before():
    case, _ = judged(Embeddings())
    first, last = case.attempts[0].model_dump(mode="json")["checks"]
    assert set(first) == {"kind", "passed", "reason", "errored"}
    assert last["similarity"] == {"value": 1.0, "at_least": 0.8}
    assert "similarity" not in to_markdown(samples.report()).lower()


def test_an_answer_of_a_log_becomes_a_reference_with_the_bar_that_was_given_and_comes_back():
    ask = [{"role": "user", "content": "Capital?"}]
    line = json.dumps({"messages": ask, "ideal": [SAID, NEAR]})
    case = read_line(line, tag="t", ideal_as="similar", at_least=0.75).case
    [check] = case.checks
    assert check.model_dump(mode="json") == near([SAID, NEAR], 0.75)
    assert json.loads(write_line(case))["reference"] == [SAID, NEAR]
    one = Case.model_validate({**case.model_dump(exclude={"checks"}), "checks": [near()]})
    assert json.loads(write_line(one))["reference"] == SAID
