"""A key that a server repeats wherever it can reaches no report, no file and no page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.bakeoff.entry import endpoint_entry
from engine_pipeline.bakeoff.file import BakeoffFile
from engine_pipeline.bakeoff.markdown import to_markdown as bakeoff_markdown
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.bakeoff.page import to_html as bakeoff_page
from engine_pipeline.bakeoff.result import judge_bakeoff
from engine_pipeline.bakeoff.run import run_bakeoff
from engine_pipeline.bakeoff.trial import trial_of
from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.differences import NoLive
from engine_pipeline.gates.endpoint_gate import judge_endpoint
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.junit import to_junit
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.suite import Suite
from engine_pipeline.gates.testing.chat_server import ChatServer
from engine_pipeline.progress import Silent
from engine_registry.documents import canonical_json
from engine_registry.testing.samples import TickingClock
from tests.bakeoff_world import OVERHEAD
from tests.chat_world import suite_of
from tests.servers.endpoint import serving_endpoint

# Every kind of character that a key may have.
KEY = "sk-key:Zx81+QwEr/TyUi=OpAs.Df~Gh_1"
# So much of a key that is cut gives away what it is, and a piece from within it.
TRACES = (KEY[:8], KEY[10:20])
# Where reports cut: stored answers, one line of an error, the body of a refusal.
ANSWER_CHARS, LINE_CHARS, BODY_BYTES = 2000, 300, 2000
HALF = len(KEY) // 2


def said(*parts: str, **chunk: Any) -> str:
    """A stream that says these parts, one an event."""
    events: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": part}}], **chunk} for part in parts
    ]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    return stream(*events)


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


CALL = {
    "choices": [
        {
            "delta": {
                "tool_calls": [
                    {"index": 0, "function": {"name": KEY, "arguments": json.dumps({KEY: KEY})}}
                ]
            },
            "finish_reason": "tool_calls",
        }
    ]
}
# Place → status and body of the answer that repeats the key there.
PLACES: dict[str, tuple[int, str]] = {
    "whole": (200, said(f"It is {KEY}.")),
    "in-pieces": (200, said("It is ", KEY[:9], KEY[9:])),
    "cut-in-the-answer": (200, said("x" * (ANSWER_CHARS - HALF) + KEY)),
    "cut-by-max-tokens": (200, said(f"It is {KEY[:HALF]}")),
    "name-of-the-model": (200, said("Paris", model=f"alias of {KEY}")),
    "tool-call": (200, stream(CALL)),
    "field-of-an-object": (200, said(json.dumps({KEY: 1}))),
    "error-in-the-stream": (
        200,
        stream({"error": {"message": "x" * (LINE_CHARS - HALF) + KEY}}),
    ),
    "refusal": (429, f"wrong key {KEY}"),
    "cut-in-a-refusal": (429, " " * (BODY_BYTES - HALF) + KEY),
}
JUDGED = {"kind": "judge", "question": "Does it name the capital?"}
FIELD = {"kind": "json", "schema": {"type": "object", "additionalProperties": False}}


class Parrot(ChatServer):
    """Repeats its key in the place that the question names; otherwise it answers well."""

    async def _chat(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        place = body["messages"][-1]["content"]
        if body["messages"][0]["role"] == "system":
            verdict = {"reason": f"because {KEY}", "verdict": "yes"}
            place, answer = "judge", (200, said(json.dumps(verdict), model=KEY))
        elif place in PLACES:
            answer = PLACES[place]
        else:
            await super()._chat(body, writer)
            return
        status, text = answer
        kind = "text/event-stream" if status == 200 else "text/plain"
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\n\r\n{text}".encode())


def suite() -> Suite:
    checks: dict[str, list[dict[str, Any]]] = {
        "whole": [JUDGED],
        "tool-call": [{"kind": "no-tool-call"}],
        "field-of-an-object": [FIELD],
    }
    return suite_of(
        *(
            {
                "id": place,
                "tags": ["keys"],
                "messages": [{"role": "user", "content": place}],
                "checks": checks.get(place, [{"kind": "prefix", "any_of": ["Nothing like it"]}]),
            }
            for place in PLACES
        )
    )


@pytest.fixture(scope="module")
def parrot() -> Iterator[str]:
    with serving_endpoint(Parrot(api_key=KEY)) as url:
        yield url


def judge(url: str) -> dict[str, Any]:
    return {"endpoint": url, "model": "big", "api_key_env": "THE_KEY"}


def leaks(text: str) -> list[str]:
    return [trace for trace in TRACES if trace in text]


def test_a_key_planted_in_every_place_is_in_no_face_of_a_gates_report(parrot, tmp_path):
    policy = {
        "suite": "core",
        "quality": {"min_score": 0.9},
        "performance": {
            "requests": 4,
            "concurrency": 2,
            "output_tokens": 4,
            "max_ttft_p95_ms": 5000,
        },
        "judge": judge(parrot),
    }
    report = judge_endpoint(
        endpoint=Endpoint(base_url=parrot, model="engine", api_key=KEY),
        gate="keys",
        policy=GatePolicy.model_validate(policy),
        suite=suite(),
        progress=Silent(),
        clock=TickingClock(),
        workdir=tmp_path,
        judge=Endpoint(base_url=parrot, model="big", api_key=KEY),
    )
    # Each place is reached: something was masked there.
    masked = {case.id for case in report.cases if "***" in case.model_dump_json()}
    assert masked == set(PLACES) - {"name-of-the-model"}
    assert report.judge is not None
    assert report.judge.named_itself == ("***",)
    for face in (
        canonical_json(report).decode(),
        to_markdown(report),
        to_junit([report]),
        to_html(report, NoLive(reason="alone")),
    ):
        assert leaks(face) == []


def test_a_key_planted_in_every_place_is_in_no_file_and_no_face_of_a_bakeoff(parrot, tmp_path):
    lane = {
        "workload": {
            "name": "chat",
            "prompt_tokens": {"kind": "fixed", "tokens": 20},
            "output_tokens": {"kind": "fixed", "tokens": 4},
            "arrival": {"kind": "poisson", "rate_per_s": 100},
            "requests": 4,
        },
        "ceilings": {"ttft_p95_ms": 5000},
    }
    file = BakeoffFile.model_validate(
        {
            "schema_version": 1,
            "name": "keys",
            "contestants": [
                {
                    "name": name,
                    "endpoint": {"url": parrot, "model": model, "api_key_env": "THE_KEY"},
                    "model_revision": "r1",
                    "chat_template": "t1",
                }
                for name, model in (("one", "engine"), ("two", "another"))
            ],
            "suites": ["core"],
            "load": {"requests": 4, "concurrency": [2], "output_tokens": 4},
            "lanes": {"chat": lane},
            "judge": judge(parrot),
            "optimise": ["quality"],
        }
    )
    trial = trial_of(
        file,
        [suite()],
        today=TickingClock()().date(),
        judge=Endpoint(base_url=parrot, model="big", api_key=KEY),
    )
    found = run_bakeoff(
        trial,
        {
            one.name: endpoint_entry(one, {"THE_KEY": f"{KEY}\n"}, timeout_s=30.0)
            for one in file.contestants
        },
        workdir=tmp_path,
        again=False,
        self_test=lambda: OVERHEAD,
        progress=Silent(),
        clock=TickingClock(),
    )
    [one, two] = found.values()
    assert isinstance(one, Measured)
    masked = {case.id for case in one.suites[0].cases if "***" in case.model_dump_json()}
    assert masked == set(PLACES) - {"name-of-the-model"}
    assert isinstance(two, Unmeasured)
    assert "serves engine, not 'another'" in two.why
    result = judge_bakeoff(file, {"one": one}, {"two": two}, TickingClock()())
    kept = "".join(path.read_text() for path in Path(tmp_path).rglob("*") if path.is_file())
    for face in (kept, result.model_dump_json(), bakeoff_markdown(result), bakeoff_page(result)):
        assert leaks(face) == []
