"""Servers that somebody else runs: judged as they are, whatever fields they refuse."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.dialect import Dialect
from engine_pipeline.gates.dialect_probe import Manners, find_manners
from engine_pipeline.gates.differences import NoLive
from engine_pipeline.gates.endpoint_gate import judge_endpoint
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.junit import to_junit
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Report
from engine_pipeline.gates.run import attach
from engine_pipeline.gates.suite import Sampling, Suite
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.progress import Silent
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput, Unavailable
from engine_registry.registry import open_registry
from engine_registry.testing.samples import TickingClock

SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=16)
SPEED = {"requests": 8, "concurrency": 2, "output_tokens": 8, "max_ttft_p95_ms": 5000}


class StrictServer(ChatServer):
    """Refuses fields that it does not know, as hosted servers do.

    Args:
        unknown: fields that are refused.
        names_them: whether the refusal says which.
        wants: fields that a request must have.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        unknown: tuple[str, ...] = (),
        names_them: bool = True,
        wants: tuple[str, ...] = (),
        **changes: Any,
    ) -> None:
        super().__init__(behaviour, **changes)
        self.unknown, self.names_them, self.wants = unknown, names_them, wants
        self.bodies: list[dict[str, Any]] = []

    async def _chat(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.bodies.append(body)
        bad = [field for field in self.unknown if field in body]
        bad += [field for field in self.wants if field not in body]
        if not bad:
            await super()._chat(body, writer)
            return
        words = f"Unsupported parameter: {bad[0]!r}" if self.names_them else "bad request"
        said = json.dumps({"error": {"message": words}}).encode()
        writer.write(b"HTTP/1.1 400 x\r\nContent-Type: application/json\r\n\r\n" + said)


@contextmanager
def listening(server: ChatServer) -> Iterator[str]:
    """Serve from another thread, as somebody else's server does."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    found: list[str] = []
    over = asyncio.Event()

    async def serve() -> None:
        async with server.listening() as url:
            found.append(url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def manners(server: ChatServer, **changes: Any) -> Manners:
    with listening(server) as url:
        endpoint = Endpoint(base_url=url, model="m", **changes)
        return asyncio.run(find_manners(endpoint, SAMPLING, timeout_s=5))


def suite(**sampling: Any) -> Suite:
    return Suite.model_validate(
        {
            "name": "demo",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {**SAMPLING.model_dump(), **sampling},
            "cases": [
                {
                    "id": "a",
                    "tags": ["facts"],
                    "messages": [{"role": "user", "content": "Capital?"}],
                    "checks": [{"kind": "contains", "all_of": ["Paris"]}],
                }
            ],
        }
    )


def judge(server: ChatServer, tmp_path: Path, **changes: Any) -> Report:
    policy = {"suite": "demo", "quality": {"min_score": 1.0}, **changes.pop("policy", {})}
    with listening(server) as url:
        return judge_endpoint(
            endpoint=Endpoint(base_url=url, model="m", api_key=changes.pop("api_key", None)),
            gate="demo",
            policy=GatePolicy.model_validate(policy),
            suite=changes.pop("suite", suite()),
            progress=Silent(),
            clock=TickingClock(),
            workdir=tmp_path,
            **changes,
        )


def outcomes(report: Report) -> dict[str, Outcome]:
    return {finding.name: finding.outcome for finding in report.findings}


PARIS = Behaviour(answer="It is Paris.")


def test_an_endpoint_that_takes_everything_is_sent_everything():
    server = StrictServer(PARIS)
    found = manners(server)
    assert found == Manners(dialect=Dialect(), tells_usage=True, named_itself=None)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("names_them", [True, False])
@pytest.mark.parametrize(
    "unknown",
    [("seed",), ("stream_options",), ("seed", "top_p"), ("temperature",), ("seed", "temperature")],
)
def test_a_field_that_is_refused_is_left_out_and_no_other(unknown, names_them):
    found = manners(StrictServer(PARIS, unknown=unknown, names_them=names_them))
    assert found.dialect == Dialect(dropped=frozenset(unknown))


@pytest.mark.parametrize("names_them", [True, False])
def test_a_server_with_another_name_for_the_token_limit_is_spoken_to_in_its_words(names_them):
    server = StrictServer(
        PARIS, unknown=("max_tokens",), names_them=names_them, wants=("max_completion_tokens",)
    )
    found = manners(server)
    assert found.dialect == Dialect(renamed=(("max_tokens", "max_completion_tokens"),))


def test_a_stream_without_usage_is_seen_before_anything_is_measured():
    assert not manners(ChatServer(Behaviour(usage=False))).tells_usage


@pytest.mark.parametrize(
    ("server", "kind", "reference"),
    [
        (StrictServer(unknown=("model",)), InvalidInput, "endpoint-refuses-chats"),
        (ChatServer(api_key="other"), InvalidInput, "endpoint-key-refused"),
        (ChatServer(Behaviour(status=404)), InvalidInput, "endpoint-other-api"),
        (ChatServer(Behaviour(raw="<html>")), Unavailable, "endpoint-unavailable"),
        (ChatServer(Behaviour(raw="data: 3\n\n")), InvalidInput, "endpoint-no-stream"),
        (ChatServer(Behaviour(status=429)), Unavailable, "endpoint-unavailable"),
        (ChatServer(Behaviour(status=503)), Unavailable, "endpoint-unavailable"),
    ],
    ids=["all", "key", "path", "no-stream", "other-json", "limited", "busy"],
)
def test_an_endpoint_that_cannot_be_asked_is_told_apart_by_what_to_do(server, kind, reference):
    with pytest.raises(kind) as caught:
        manners(server)
    assert caught.value.name == reference
    assert caught.value.hint


def test_an_endpoint_is_asked_measured_and_judged_under_a_gates_bars(tmp_path):
    policy = {
        "performance": SPEED,
        "parity": {"parent": "m/t-fp16", "max_kl": 0.02},
        "paired": {"against": "prod"},
    }
    report = judge(ChatServer(PARIS), tmp_path, policy=policy)
    assert (report.engine, report.device) == (None, None)
    assert outcomes(report) == {
        "load": Outcome.PASSED,
        "finite log probabilities": Outcome.SKIPPED,
        "degenerate answers": Outcome.PASSED,
        "score": Outcome.PASSED,
        # Eight requests prove no p95.
        "ttft_p95_ms": Outcome.INCONCLUSIVE,
        "parity": Outcome.SKIPPED,
        "against live": Outcome.SKIPPED,
    }
    assert Report.model_validate_json(canonical_json(report)) == report


def test_a_bad_endpoint_fails(tmp_path):
    report = judge(ChatServer(Behaviour(answer="It is Rome.")), tmp_path)
    assert report.outcome is Outcome.FAILED
    assert "evidence for no release" in to_html(report, NoLive(reason="alone"))


def test_a_suite_at_temperature_0_is_not_proven_by_a_server_that_refuses_temperatures(tmp_path):
    server = StrictServer(PARIS, unknown=("temperature", "seed"))
    report = judge(server, tmp_path)
    assert outcomes(report)["sampling"] is Outcome.INCONCLUSIVE
    assert report.outcome is Outcome.INCONCLUSIVE
    assert report.endpoint is not None
    assert report.endpoint.dropped == ("seed", "temperature")
    assert all("temperature" not in body for body in server.bodies[-1:])
    told = judge(server, tmp_path, suite=suite(temperature=1.0))
    assert outcomes(told)["sampling"] is Outcome.SKIPPED
    assert told.outcome is Outcome.PASSED


def test_a_load_is_made_where_neither_ignore_eos_nor_usage_is_known(tmp_path):
    server = StrictServer(
        Behaviour(answer="It is Paris.", usage=False), unknown=("ignore_eos", "stream_options")
    )
    speed = {**SPEED, "max_tpot_p95_ms": 5000}
    report = judge(server, tmp_path, policy={"performance": speed})
    found = outcomes(report)
    assert found["score"] is Outcome.PASSED
    assert found["tpot_p95_ms"] is Outcome.ERRORED
    assert report.performance is not None
    assert not report.performance.ignores_eos
    assert report.performance.failed == {}


def test_a_report_on_an_endpoint_cannot_be_attached_to_anything(tmp_path):
    report = judge(ChatServer(PARIS), tmp_path / "work")
    registry = open_registry(str(tmp_path / "registry"), TickingClock())
    with pytest.raises(RuntimeError, match="names no engine"):
        attach(registry, report)


def test_every_face_names_the_endpoint_and_its_ways(tmp_path):
    report = judge(StrictServer(PARIS, unknown=("seed",)), tmp_path)
    for face in (to_markdown(report), to_html(report, NoLive(reason="alone"))):
        assert "refuses seed" in face
    assert f"m at {report.endpoint.url}" in to_junit([report])
    assert "gate demo on endpoint m at http" in to_markdown(report)


def test_a_report_names_an_engine_or_an_endpoint_and_never_both(tmp_path):
    report = judge(ChatServer(PARIS), tmp_path)
    with pytest.raises(ValueError, match="one of the two"):
        Report.model_validate({**report.model_dump(), "endpoint": None})


def test_the_template_guard_speaks_the_endpoints_dialect(tmp_path):
    chat = {"id": "one", "messages": [{"role": "user", "content": "a b c"}], "tokens": [1, 2, 3]}
    goldens = {
        "schema_version": 1,
        "reference": {"spec": "m/t-fp16", "note": "x"},
        "chats": [chat],
    }
    asked = Suite.model_validate({**suite().model_dump(), "template": goldens})
    server = StrictServer(
        PARIS, unknown=("max_tokens", "temperature"), wants=("max_completion_tokens",)
    )
    report = judge(server, tmp_path, suite=asked)
    assert outcomes(report)["chat template"] is Outcome.PASSED
    assert "only the number of its tokens is told" in report.template.chats[0].reason


@pytest.mark.parametrize(
    ("until", "outcome"), [("2999-12-31", "errored"), ("2000-01-01", "failed")]
)
def test_a_quarantine_is_looked_at_on_the_day_of_the_gate(tmp_path, until, outcome):
    held = suite().model_dump(by_alias=True)
    held["cases"][0]["quarantine"] = {"owner": "Ada", "until": until, "reason": "trips"}
    report = judge(
        ChatServer(Behaviour(answer="It is Rome.")), tmp_path, suite=Suite.model_validate(held)
    )
    # All that there is in quarantine: nothing is proven either way.
    assert report.outcome == outcome
    assert report.quarantine_ends == (date(2999, 12, 31) if outcome == "errored" else None)
