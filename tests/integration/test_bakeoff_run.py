"""The whole bake-off against servers of known behaviour: endpoints in threads, engines apart."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.bakeoff.entry import EngineEntry, checked_identity, endpoint_entry, key_of
from engine_pipeline.bakeoff.file import BakeoffFile, Contestant
from engine_pipeline.bakeoff.kept import only_one
from engine_pipeline.bakeoff.markdown import to_markdown
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.bakeoff.page import to_html
from engine_pipeline.bakeoff.result import BakeoffResult, judge_bakeoff
from engine_pipeline.bakeoff.run import run_bakeoff
from engine_pipeline.bakeoff.trial import trial_of
from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Device
from engine_pipeline.gates.suite import Suite
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.errors import Conflict, InvalidInput
from engine_registry.registry import Registry
from engine_registry.testing.samples import TickingClock
from tests.bakeoff_world import OVERHEAD
from tests.chat_world import GOOD, SUITE, ChatBackend, engine_of, registry_at, suite_of
from tests.servers.endpoint import endpoint

PATIENCE_S = 60.0
TODAY = date(2026, 3, 1)
FITS = '{"place": "Paris", "year": 1889}'
PLAIN: dict[str, Any] = {
    "schema_version": 1,
    "name": "demo",
    "suites": ["core"],
    "load": {"requests": 20, "concurrency": [2], "output_tokens": 4, "prompt_words": 8},
    "structured": {
        "requests": 4,
        "output_tokens": 40,
        "ask": "Give a place and a year.",
        "schema": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "year": {"type": "integer"}},
            "required": ["place", "year"],
        },
    },
    "limits": {"min_score": 0.9, "max_ttft_p95_ms": 20000},
    "optimise": ["cost"],
    "timeout_s": PATIENCE_S,
    "load_timeout_s": PATIENCE_S,
}


def at(name: str, url: str, *, price: float = 1.0, **place: Any) -> dict[str, Any]:
    return {
        "name": name,
        "endpoint": {"url": url, "model": "engine", **place},
        "model_revision": "r1",
        "chat_template": "t1",
        "price": {"per_million_output_tokens": price},
    }


def bake(
    tmp_path: Path,
    contestants: list[dict[str, Any]],
    *,
    environment: dict[str, str] | None = None,
    entries: dict[str, Any] | None = None,
    again: bool = False,
    suite: Suite = SUITE,
    judge: Endpoint | None = None,
    today: date = TODAY,
    **changes: Any,
) -> BakeoffResult:
    if judge is not None:
        changes["judge"] = {"endpoint": judge.base_url, "model": judge.model}
    file = BakeoffFile.model_validate(PLAIN | {"contestants": contestants} | changes)
    asked: dict[str, Any] = dict(entries or {})
    for one in file.contestants:
        if one.endpoint is not None:
            try:
                asked[one.name] = endpoint_entry(one, environment or {}, timeout_s=PATIENCE_S)
            except InvalidInput as error:
                asked[one.name] = Unmeasured(outcome=Outcome.ERRORED, why=error.message)
    trial = trial_of(file, [suite], today=today, judge=judge)
    found = run_bakeoff(
        trial,
        asked,
        workdir=tmp_path / "kept",
        again=again,
        self_test=lambda: OVERHEAD,
        progress=Silent(),
        clock=TickingClock(),
    )
    return judge_bakeoff(
        file,
        {name: made for name, made in found.items() if isinstance(made, Measured)},
        {name: made for name, made in found.items() if isinstance(made, Unmeasured)},
        TickingClock()(),
    )


def row(result: BakeoffResult, name: str):
    return next(one for one in result.contestants if one.name == name)


def test_known_answers_and_delays_are_found_and_the_cheaper_good_one_is_taken(tmp_path):
    with (
        endpoint(answers=GOOD, structured=FITS, ttft_s=0.03) as (good, _),
        endpoint(answers=GOOD, structured="no", ttft_s=0.1) as (slow, _),
        endpoint(answers=GOOD | {"2 + 2?": "5"}, structured=FITS) as (wrong, _),
    ):
        result = bake(
            tmp_path,
            [at("good", good, price=2.0), at("slow", slow, price=3.0), at("wrong", wrong)],
        )
    assert result.winner == "good"
    assert [one.place for one in result.contestants] == [1, 2, None]
    assert row(result, "wrong").reasons == ("score 0.500, want at least 0.9",)
    for name, least in (("good", 30), ("slow", 100)):
        step = row(result, name).at
        assert step is not None
        assert step.ttft_p95_ms.value is not None
        assert step.ttft_p95_ms.value >= least
        assert step.failed == {}
    structured = row(result, "slow").structured
    assert structured is not None
    assert (structured.valid, sum(structured.defects.values())) == (0, 4)
    assert row(result, "good").structured.valid == 4
    # Cheaper and wrong: a lower bar on the score would let it in.
    assert any("least score" in flip.words and flip.winner == "wrong" for flip in result.flips)


def test_structured_requests_carry_the_schema_in_the_form_of_the_api(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        bake(tmp_path, [at("one", url), at("two", url + "/v1")])
    asked = [t.body["response_format"] for t in server.truths if "response_format" in t.body]
    assert len(asked) == 2 * (4 + 1)
    assert asked[0]["type"] == "json_schema"
    assert asked[0]["json_schema"]["schema"] == PLAIN["structured"]["schema"]


def test_one_contestants_trouble_is_a_row_and_not_the_end(tmp_path):
    with (
        endpoint(answers=GOOD, structured=FITS) as (url, _),
        endpoint(models=("another",)) as (other, _),
        endpoint(status=503) as (busy, _),
    ):
        result = bake(
            tmp_path,
            [
                at("down", "http://127.0.0.1:1"),
                at("other", other),
                at("busy", busy),
                at("keyless", url, api_key_env="NOT_SET_ANYWHERE"),
                at("good", url, price=9.0),
            ],
        )
    assert result.winner == "good"
    why = {one.name: one.reasons[0] for one in result.contestants if one.name != "good"}
    assert re.search("not measured: http://127.0.0.1:1: no answer", why["down"])
    assert "serves another, not 'engine'" in why["other"]
    assert "not measured: " + busy in why["busy"]
    assert "503" in why["busy"]
    assert "NOT_SET_ANYWHERE, which is not set" in why["keyless"]
    assert any("busy may be better" in caveat for caveat in result.caveats)


@pytest.mark.parametrize(
    ("field", "so"),
    [
        ("temperature", "; asked by core for temperature 0, it draws by its own default"),
        ("top_p", ""),  # the suite asks for 1.0, as everybody does who says nothing
    ],
)
def test_an_endpoint_that_refuses_a_field_is_asked_without_it_and_the_page_says_so(
    tmp_path, field, so
):
    with (
        endpoint(answers=GOOD, structured=FITS, refused_field=field) as (proud, server),
        endpoint(answers=GOOD, structured=FITS) as (good, _),
    ):
        result = bake(tmp_path, [at("proud", proud), at("good", good, price=9.0)])
    assert result.winner == "proud"
    after_the_probe = [truth.body for truth in server.truths][12:]
    assert len(after_the_probe) > 20
    assert not any(field in body for body in after_the_probe)
    assert all("seed" in body for body in after_the_probe)
    [said] = [one for one in result.caveats if one.startswith("proud was asked in its own way")]
    assert said.removeprefix(f"proud was asked in its own way: it refuses {field}").startswith(so)
    assert ("by its own default" in said) == bool(so)
    assert f"refuses {field}" in to_html(result)


def test_everybody_in_trouble_is_no_verdict_on_anybody(tmp_path):
    result = bake(
        tmp_path, [at("a", "http://127.0.0.1:1"), at("b", "http://127.0.0.1:1/elsewhere")]
    )
    assert (result.winner, str(result.outcome)) == (None, "errored")


def test_what_was_measured_is_not_measured_again_and_is_judged_by_the_prices_of_now(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        one, two = at("one", url), at("two", url + "/v1", price=2.0)
        assert bake(tmp_path, [one, two]).winner == "one"
        asked = len(server.truths)
        dearer = one | {"price": {"per_million_output_tokens": 3.0}}
        assert bake(tmp_path, [dearer, two]).winner == "two"
        assert len(server.truths) == asked
        bake(tmp_path, [one, two], again=True)
        assert len(server.truths) == 2 * asked


def test_another_load_or_another_stated_revision_is_measured_anew(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        both = [at("one", url), at("two", url)]
        bake(tmp_path, both)
        before = len(server.truths)
        bake(tmp_path, [both[0] | {"model_revision": "r2"}, both[1]])
        between = len(server.truths)
        assert between > before
        load = PLAIN["load"] | {"requests": 21}
        bake(tmp_path, both, load=load)
        assert len(server.truths) > between


def test_only_those_without_a_measurement_are_asked_after_an_interruption(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        bake(tmp_path, [at("one", url), at("down", "http://127.0.0.1:1")])
        asked = len(server.truths)
        result = bake(tmp_path, [at("one", url), at("down", url + "/v1")])
        assert len(server.truths) == 2 * asked
    assert result.caveats != ()
    assert [one.place is None for one in result.contestants] == [False, False]


def test_a_damaged_measurement_is_made_anew(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        both = [at("one", url), at("two", url + "/v1")]
        bake(tmp_path, both)
        asked = len(server.truths)
        kept = sorted((tmp_path / "kept").glob("*.json"))
        assert len(kept) == 2
        kept[0].write_bytes(kept[0].read_bytes().replace(b"It is", b"It Is"))
        bake(tmp_path, both)
        assert len(server.truths) == asked * 3 // 2


WORKLOAD = {
    "name": "chat",
    "prompt_tokens": {"kind": "uniform", "low": 20, "high": 60},
    "output_tokens": {"kind": "fixed", "tokens": 4},
    "arrival": {"kind": "poisson", "rate_per_s": 100},
    "requests": 60,
}
LANE: dict[str, Any] = {
    "workload": WORKLOAD,
    "slo": {"max_ttft_ms": 150},
    "min_good_share": 0.3,
    "max_client_lag_ms": 20000,
}


def test_users_as_they_come_are_a_row_of_their_own_and_can_decide(tmp_path):
    goal = {"lane": "interactive", "metric": "ttft_p95_ms"}
    # Both do well with few in flight; only one of them answers within the SLO.
    with (
        endpoint(answers=GOOD, structured=FITS) as (quick, _),
        endpoint(answers=GOOD, structured=FITS, ttft_s=0.3) as (slow, server),
    ):
        both = [at("quick", quick, price=9.0), at("slow", slow)]
        limited = bake(tmp_path, both, lanes={"interactive": LANE})
        asked = len(server.truths)
        lenient = {"workload": WORKLOAD, "ceilings": {"ttft_p95_ms": 9000}}
        preferred = bake(tmp_path, both, lanes={"interactive": lenient}, optimise=[goal, "cost"])
    assert limited.winner == "quick"
    [why] = row(limited, "slow").reasons
    assert why.startswith("interactive: good_share 0 of requests, want at least 0.3")
    [quick_row], [slow_row] = row(limited, "quick").lanes, row(limited, "slow").lanes
    assert (quick_row.outcome, slow_row.outcome) == (Outcome.PASSED, Outcome.FAILED)
    assert quick_row.load == "60 requests, 100 requests/s, Poisson"
    assert slow_row.numbers["ttft_p95_ms"].value >= 300
    # Other bars are judged anew from what was measured.
    assert len(server.truths) == asked
    assert preferred.winner == "quick"
    assert "in TTFT p95 of interactive quick at" in preferred.recommendation
    for face in (to_markdown(limited), to_html(limited)):
        assert "quick, interactive" in face
        assert "Every lane" in face
        assert "goodput of interactive at least 30%" in face
    # None of the slow one's requests was good, so no bar lets it in; the quick one has its end.
    assert {flip.up for flip in limited.flips if flip.lever == "lane bar"} == {True}


def test_a_client_that_cannot_keep_up_shows_nobody_to_meet_a_lanes_bars(tmp_path):
    late = LANE | {"max_client_lag_ms": 0.000001}
    with endpoint(answers=GOOD, structured=FITS) as (url, _):
        result = bake(
            tmp_path, [at("one", url), at("two", url + "/v1")], lanes={"interactive": late}
        )
    assert (result.winner, result.outcome) == (None, Outcome.INCONCLUSIVE)
    assert "interactive: client the client could not keep up" in row(result, "one").reasons[0]


def test_another_workload_is_measured_anew_and_other_bars_are_not(tmp_path):
    with endpoint(answers=GOOD, structured=FITS) as (url, server):
        both = [at("one", url), at("two", url + "/v1")]
        bake(tmp_path, both, lanes={"chat": LANE})
        asked = len(server.truths)
        harder = LANE | {"slo": {"max_ttft_ms": 0.001}, "ceilings": {"e2e_p99_ms": 0.001}}
        assert bake(tmp_path, both, lanes={"chat": harder}).winner is None
        assert len(server.truths) == asked
        bake(tmp_path, both, lanes={"chat": LANE | {"workload": WORKLOAD | {"requests": 61}}})
        assert len(server.truths) == 2 * (asked + 1)


PACKAGE = """
def is_short(answer, *, most):
    return None if len(answer["text"]) <= most else f"{len(answer['text'])} characters"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that declares a check; gives the file of its code."""
    site = tmp_path / "site"
    info = site / "short_checks-1.dist-info"
    info.mkdir(parents=True)
    (site / "short_checks.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: short-checks\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[engine_ci.checks]\nis_short = short_checks:is_short\n")
    (info / "RECORD").write_text("short_checks.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site / "short_checks.py"


def test_a_judge_and_the_code_of_a_package_decide_as_they_do_in_a_gate(tmp_path, package):
    checks = [
        {"kind": "judge", "question": "Does it name the capital?"},
        {"kind": "python", "entry_point": "short_checks:is_short", "options": {"most": 20}},
    ]
    asked = suite_of(
        {
            "id": "told",
            "tags": ["facts"],
            "messages": [{"role": "user", "content": "And of Spain?"}],
            "checks": checks,
        }
    )
    verdict = '{"reason": "as asked", "verdict": "yes"}'
    spain = GOOD | {"And of Spain?": "Madrid."}
    at_length = GOOD | {"And of Spain?": "That is Madrid, as far as is known."}
    with (
        endpoint(answer=verdict, structured=verdict) as (where, server),
        endpoint(answers=spain, structured=FITS) as (good, _),
        endpoint(answers=at_length, structured=FITS) as (wordy, _),
    ):
        both = [at("good", good), at("wordy", wordy)]
        place = Endpoint(base_url=where, model="big")
        result = bake(tmp_path, both, suite=asked, judge=place)
        judged = len(server.truths)
        # The judge is not asked again of what is known, and other code is another measurement.
        bake(tmp_path, both, suite=asked, judge=place)
        assert len(server.truths) == judged == 2
        package.write_text(PACKAGE.replace("<=", "<"))
        bake(tmp_path, both, suite=asked, judge=place)
        assert len(server.truths) == 2 * judged
    assert row(result, "good").suites[0].failed == ()
    assert row(result, "wordy").suites[0].failed == ("told",)
    told = dict(row(result, "good").advisers)
    assert told["judge"].startswith("big at http://127.0.0.1")
    assert told["check"].startswith("short_checks:is_short of short-checks 1, ")
    assert "short_checks:is_short" in to_html(result)
    with pytest.raises(InvalidInput, match="needs `judge` for told, the file names none"):
        bake(tmp_path, both, suite=asked)


def test_a_case_in_quarantine_is_asked_and_does_not_count_until_its_day_is_over(tmp_path):
    quarantine = {"owner": "Ada", "until": str(TODAY), "reason": "flaky"}
    left_out = {
        "id": "flaky",
        "tags": ["facts"],
        "must": True,
        "messages": [{"role": "user", "content": "Who knows?"}],
        "checks": [{"kind": "contains", "all_of": ["Nobody"]}],
        "quarantine": quarantine,
    }
    with endpoint(answers=GOOD, structured=FITS) as (url, _):
        both = [at("one", url), at("two", url + "/v1")]
        meanwhile = bake(tmp_path, both, suite=suite_of(left_out))
        afterwards = bake(tmp_path, both, suite=suite_of(left_out), today=TODAY + timedelta(days=1))
    assert row(meanwhile, "one").score.value == 1.0
    assert row(meanwhile, "one").suites[0].failed == ("flaky",)
    assert afterwards.winner is None
    assert "cases that must pass failed: flaky" in " ".join(row(afterwards, "one").reasons)


def test_two_bakeoffs_never_measure_at_once(tmp_path):
    with only_one(tmp_path / "kept"), pytest.raises(Conflict, match="another bake-off"):
        bake(tmp_path, [at("a", "http://127.0.0.1:1"), at("b", "http://127.0.0.1:1/x")])


@pytest.mark.parametrize(
    "value", ["", "   ", "short", "with a blank inside", "schlüssel-schlüssel", 'with"a-quote']
)
def test_a_variable_that_holds_no_key_is_told_without_its_value(value):
    contestant = Contestant.model_validate(at("a", "http://x", api_key_env="THE_KEY"))
    with pytest.raises(InvalidInput, match="THE_KEY") as caught:
        endpoint_entry(contestant, {"THE_KEY": value}, timeout_s=PATIENCE_S)
    assert not value.strip() or value not in caught.value.message


def engine_entry(
    registry: Registry, tmp_path: Path, *, options: tuple[str, ...] = (), **behaviour: Any
) -> EngineEntry:
    digest = engine_of(registry, structured=FITS, **behaviour)
    contestant = Contestant.model_validate({"name": "x", "engine": str(digest)})
    return EngineEntry(
        identity=checked_identity(contestant, digest, "r1", Digest.of(b"template")),
        engine=digest,
        registry=registry,
        backend=ChatBackend(),  # type: ignore[arg-type]
        device=Device(sku="cpu", host_class="test", cpu_model="test", cores=2),
        runtime_config={"options": options},
        workdir=tmp_path / "work",
        load_timeout_s=PATIENCE_S,
        place=nullcontext,
    )


def ours(name: str, price: float = 1.0) -> dict[str, Any]:
    return {"name": name, "engine": f"tiny/cpu:{name}", "price": {"per_hour": price}}


def test_engines_are_served_one_after_the_other_and_what_does_not_load_is_a_row(tmp_path):
    registry = registry_at(tmp_path)
    entries = {
        "good": engine_entry(registry, tmp_path, gap_s=0.002),
        "dies": engine_entry(registry, tmp_path, options=("--exit-at-load", "3")),
        "crashes": engine_entry(registry, tmp_path, exit_after=1),
    }
    result = bake(tmp_path, [ours("good"), ours("dies"), ours("crashes")], entries=entries)
    assert result.winner == "good"
    good = row(result, "good")
    assert good.identity is not None
    assert good.identity.verified
    assert good.load_s is not None
    # What others used of this machine meanwhile is known of a server that was started here.
    [kept] = (tmp_path / "kept").glob("*.json")
    assert re.search(rb'"foreign_cpu": ?[0-9]', kept.read_bytes())
    assert "was not ready: " in row(result, "dies").reasons[0]
    assert "the server exited" in row(result, "crashes").reasons[0]
    # Both are their own fault: judged and bad, and nothing that might be better after all.
    assert {row(result, name).outcome for name in ("dies", "crashes")} == {Outcome.FAILED}
    assert not any("may be better" in caveat for caveat in result.caveats)
    assert [path.name for path in (tmp_path / "work").iterdir()] == []


def test_what_a_server_is_started_with_is_part_of_what_is_kept(tmp_path):
    registry = registry_at(tmp_path)
    file = BakeoffFile.model_validate(PLAIN | {"contestants": [ours("a"), ours("b")]})
    plain = engine_entry(registry, tmp_path)
    other = engine_entry(registry, tmp_path, options=("--load-s", "0"))
    trial = trial_of(file, [SUITE], today=TODAY)
    assert key_of(plain, trial) != key_of(other, trial)
    assert key_of(plain, trial) == key_of(engine_entry(registry, tmp_path), trial)


def test_a_file_that_states_another_revision_than_the_engine_was_built_from_is_refused():
    contestant = Contestant.model_validate(ours("a") | {"model_revision": "r2"})
    with pytest.raises(InvalidInput, match="states model_revision r2, .* built from r1"):
        checked_identity(contestant, Digest.of(b"engine"), "r1", None)


OWNER = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("bakeoff_story", sys.argv[1])
story = importlib.util.module_from_spec(spec)
sys.modules["bakeoff_story"] = story
spec.loader.exec_module(story)
work = Path(sys.argv[2])
registry = story.registry_at(work)
entries = {
    "first": story.engine_entry(registry, work),
    "hangs": story.engine_entry(registry, work, ttft_s=600.0),
}
story.bake(work, [story.ours("first"), story.ours("hangs")], entries=entries)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_it_no_server_is_left_and_a_rerun_goes_on_where_it_was(tmp_path, how):
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(map(str, (root, root / "registry", root / "pipeline")))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, __file__, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as owner:
        port = _port_of_the_second(tmp_path, owner)
        os.kill(owner.pid, how)
        _, stderr = owner.communicate(timeout=PATIENCE_S)
    assert owner.returncode == -how
    _wait_until(lambda: not _listens(port), "the server outlives the bake-off")
    if how is signal.SIGINT:
        assert "KeyboardInterrupt" in stderr
        assert list((tmp_path / "work").iterdir()) == []
    [kept] = (tmp_path / "kept").glob("*.json")
    was = (kept.stat().st_ino, kept.stat().st_mtime_ns)
    registry = registry_at(tmp_path)
    entries = {
        "first": engine_entry(registry, tmp_path),
        "second": engine_entry(registry, tmp_path, gap_s=0.002),
    }
    result = bake(tmp_path, [ours("first"), ours("second", 99.0)], entries=entries)
    assert result.winner == "first"
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == was
    assert list((tmp_path / "work").iterdir()) == []


def _port_of_the_second(tmp_path: Path, owner: subprocess.Popen[str]) -> int:
    ports: list[int] = []

    def found() -> bool:
        assert owner.poll() is None, owner.stderr and owner.stderr.read()
        if not list((tmp_path / "kept").glob("*.json")):
            return False
        for log in (tmp_path / "work").glob("gate-*/server.log"):
            words = log.read_text().split()
            if "listens" in words and words[-1].isdigit() and _listens(int(words[-1])):
                ports.append(int(words[-1]))
        return bool(ports)

    _wait_until(found, "the second server did not start")
    return ports[0]


def _wait_until(is_so: Any, otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
