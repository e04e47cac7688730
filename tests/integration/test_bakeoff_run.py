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
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.backends.port import EngineFacts, EngineFile, OwnWords, ServeCommand
from engine_pipeline.bakeoff.entry import EngineEntry, checked_identity, endpoint_entry, key_of
from engine_pipeline.bakeoff.file import BakeoffFile, Contestant
from engine_pipeline.bakeoff.kept import only_one
from engine_pipeline.bakeoff.markdown import to_markdown
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.bakeoff.page import to_html
from engine_pipeline.bakeoff.result import BakeoffResult, judge_bakeoff
from engine_pipeline.bakeoff.run import masked, run_bakeoff
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Device
from engine_pipeline.gates.suite import Suite
from engine_pipeline.progress import Silent
from engine_pipeline.spec.model import EngineKind
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import Conflict, InvalidInput
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock, sample_engine
from tests.bakeoff_world import OVERHEAD
from tests.servers.endpoint import endpoint

PATIENCE_S = 60.0
KEY = "sk-proj-Zx81QwErTyUiOpAsDfGh"
GOOD = {"Capital of France?": "It is Paris.", "2 + 2?": "4"}
FITS = '{"place": "Paris", "year": 1889}'
SUITE = Suite.model_validate(
    {
        "name": "core",
        "owner": "x",
        "description": "x",
        "model": "m",
        "reference": {"spec": "m/t-fp16", "note": "x"},
        "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 16},
        "cases": [
            {
                "id": name,
                "tags": ["facts"],
                "messages": [{"role": "user", "content": asked}],
                "checks": [{"kind": "contains", "all_of": [want]}],
            }
            for name, asked, want in (
                ("capital", "Capital of France?", "Paris"),
                ("sum", "2 + 2?", "4"),
            )
        ],
    }
)
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
    **changes: Any,
) -> BakeoffResult:
    file = BakeoffFile.model_validate(PLAIN | {"contestants": contestants} | changes)
    asked: dict[str, Any] = dict(entries or {})
    for one in file.contestants:
        if one.endpoint is not None:
            try:
                asked[one.name] = endpoint_entry(one, environment or {})
            except InvalidInput as error:
                asked[one.name] = Unmeasured(outcome=Outcome.ERRORED, why=error.message)
    found = run_bakeoff(
        file,
        [SUITE],
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
    assert "not one request of suite core was taken: http-503" in why["busy"]
    assert "NOT_SET_ANYWHERE, which is not set" in why["keyless"]
    assert any("busy may be better" in caveat for caveat in result.caveats)


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


def test_two_bakeoffs_never_measure_at_once(tmp_path):
    with only_one(tmp_path / "kept"), pytest.raises(Conflict, match="another bake-off"):
        bake(tmp_path, [at("a", "http://127.0.0.1:1"), at("b", "http://127.0.0.1:1/x")])


def test_a_key_that_a_server_repeats_reaches_no_file_and_no_answer(tmp_path):
    # The first answer holds it whole; the second is cut in the middle of it by a report's limit.
    answers = {
        "Capital of France?": f"Paris, {KEY}",
        "2 + 2?": "4 " + "x" * (2000 - 2 - len(KEY) // 2) + KEY,
    }
    with endpoint(answers=answers, structured=f'{{"{KEY}": 1}}', api_key=KEY) as (url, _):
        result = bake(
            tmp_path,
            [
                at("good", url, api_key_env="GOOD_KEY"),
                at("bad", url, api_key_env="BAD_KEY"),
            ],
            environment={"GOOD_KEY": f"{KEY}\n", "BAD_KEY": f"{KEY}-not"},
        )
    assert "HTTP 401" in row(result, "bad").reasons[0]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())
    shown = result.model_dump_json() + to_markdown(result) + to_html(result)
    assert KEY[:12].encode() not in kept
    assert KEY[:12] not in shown
    assert b"Paris, ***" in kept


@pytest.mark.parametrize(
    "value", ["", "   ", "short", "with a blank inside", "schlüssel-schlüssel"]
)
def test_a_variable_that_holds_no_key_is_told_without_its_value(value):
    contestant = Contestant.model_validate(at("a", "http://x", api_key_env="THE_KEY"))
    with pytest.raises(InvalidInput, match="THE_KEY") as caught:
        endpoint_entry(contestant, {"THE_KEY": value})
    assert not value.strip() or value not in caught.value.message


def test_a_secret_is_masked_whole_in_pieces_and_more_than_once():
    secret = "abcdefgh-ijkl"
    assert masked(f"x {secret} y {secret}", secret) == "x *** y ***"
    assert masked("cut: abcdefgh-ij", secret) == "cut: ***"
    assert masked("abcdefg and nothing more", secret) == "abcdefg and nothing more"
    assert masked("abcdefghabcdefgh-ijkl", secret) == "******"


class ChatBackend:
    """What a bake-off asks of an engine kind; the engine is a chat server's behaviour, in JSON."""

    kind = EngineKind.LLAMA_CPP
    words = OwnWords()

    def inspect(self, engine_dir: Path) -> EngineFacts:
        size = (engine_dir / "behaviour.json").stat().st_size
        media = "application/json"
        return EngineFacts(
            kind=self.kind,
            format="json",
            format_version="1",
            architecture="chat",
            tensor_types={},
            parameters=0,
            files=(EngineFile(path="behaviour.json", size_bytes=size, media_type=media),),
        )

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        module = "engine_pipeline.gates.testing.chat_server"
        argv = ("{python}", "-m", module, "--port", "{port}")
        where = ("--behaviour-file", "{engine}/behaviour.json")
        options = runtime_config.get("options", ())
        return ServeCommand(argv=(*argv, *where, *options), model_name="engine")


def registry_at(tmp_path: Path) -> Registry:
    opened = open_registry(str(tmp_path / "registry"), TickingClock())
    opened.stores.blobs.add_bytes(b"founds it")
    return opened


def engine_entry(
    registry: Registry, tmp_path: Path, *, options: tuple[str, ...] = (), **behaviour: Any
) -> EngineEntry:
    data = canonical_json({"answers": GOOD, "structured": FITS, **behaviour})
    digest = sample_engine(registry, str(behaviour), {"behaviour.json": data}).digest
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
    assert key_of(plain, file, [SUITE]) != key_of(other, file, [SUITE])
    assert key_of(plain, file, [SUITE]) == key_of(engine_entry(registry, tmp_path), file, [SUITE])


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
