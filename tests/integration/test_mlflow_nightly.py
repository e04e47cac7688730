"""The mirror against a real MLflow server that is killed in the middle of it, and comes back.

What the server shows in the end is compared with what the strict fake shows for the same registry,
so that the fake of the quick tests is held to the real one.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.tracking.deliver import Pace, Run, run_once
from engine_pipeline.tracking.feed import Feed
from engine_pipeline.tracking.mlflow.gate_metrics import gate_curves
from engine_pipeline.tracking.mlflow.mirror import MlflowMirror
from engine_pipeline.tracking.mlflow.server import Address, MlflowServer
from engine_pipeline.tracking.outbox import Outbox
from engine_registry.registry import open_registry, utc_now
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from tests.servers.mlflow_fake import mlflow_running
from tests.servers.mlflow_server import CannotStart, MlflowProcess, Postgres
from tests.unit.gates import report_samples as samples
from tests.unit.tracking.conftest import World

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("mlflow")]
ENGINES = 40
EXPERIMENT = "engine-ci/tiny/cpu"
MODEL = "tiny--cpu"


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request) -> Iterator[MlflowProcess]:
    # Not below pytest's own folders: those are closed to the user that PostgreSQL runs as, and
    # their paths are too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="mlflow-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "pg").mkdir()
    postgres = Postgres(folder / "pg") if request.param == "postgresql" else None
    server = MlflowProcess(folder, postgres.uri if postgres else f"sqlite:///{folder}/mlflow.db")
    try:
        if postgres:
            postgres.start()
        server.start()
        yield server
    except CannotStart as error:
        pytest.skip(f"no MLflow on {request.param}: {error}")
    finally:
        server.kill()
        if postgres:
            postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    registry = open_registry(f"file://{tmp_path}/engines")
    registry.stores.blobs.add_bytes(b"founds it")
    outbox = Outbox(tmp_path / "state" / "mlflow.sqlite", registry="0123")
    yield World(registry, outbox, utc_now)
    outbox.close()


def mirror_once(world: World, uri: str, outbox: Outbox | None = None) -> Run:
    server = MlflowServer(Address.from_environment(uri, {}))
    mirror = MlflowMirror(world.registry, server, prefix="", registry_id="0123456789ab")
    box = outbox or world.outbox
    pace = Pace(clock=utc_now, sleep=time.sleep)
    return run_once(Feed(world.registry, box, utc_now), box, [mirror], pace, insist=True)


def engines(world: World, first: int, last: int) -> None:
    for number in range(first, last):
        engine = sample_engine(world.registry, f"engine-{number}")
        world.report(engine.digest, Outcome.FAILED if number % 5 == 4 else Outcome.PASSED)
        if number % 5 == 0:
            release = sample_release(world.registry, engine)
            sample_event(world.registry, sample_promotion(release))


def shown_by(server: MlflowProcess) -> dict:
    """What the server shows, with the mirror's ids for those that it gave."""
    found = server.ask(f"mlflow/experiments/get-by-name?experiment_name={quote(EXPERIMENT, '')}")
    experiment = found["experiment"]["experiment_id"]
    runs, token = [], None
    while True:
        body = {"experiment_ids": [experiment], "max_results": 100, "page_token": token}
        page = server.ask("mlflow/runs/search", {k: v for k, v in body.items() if v})
        runs += page.get("runs", [])
        token = page.get("next_page_token")
        if not token:
            break
    shown = {}
    known = {
        run["info"]["run_id"]: tag["value"]
        for run in runs
        for tag in run["data"]["tags"]
        if tag["key"] == "engine_ci.id"
    }
    for run in runs:
        tags = {t["key"]: t["value"] for t in run["data"]["tags"]}
        assert tags["engine_ci.id"] not in shown, "one fact has two runs"
        shown[tags["engine_ci.id"]] = (
            run["info"]["status"],
            {p["key"]: p["value"] for p in run["data"].get("params", [])},
            {m["key"]: m["value"] for m in run["data"].get("metrics", [])},
            own(tags, known),
            files(server, run["info"]) if tags["engine_ci.kind"] == "gate" else {},
        )
    model = server.ask(f"mlflow/registered-models/get?name={MODEL}")["registered_model"]
    filtered = quote(f"name='{MODEL}'", "")
    page = server.ask(f"mlflow/model-versions/search?filter={filtered}&max_results=1000")
    releases = {
        str(version["version"]): {t["key"]: t["value"] for t in version["tags"]}[
            "engine_ci.release"
        ]
        for version in page["model_versions"]
    }
    aliases = {a["alias"]: releases[str(a["version"])] for a in model.get("aliases", [])}
    return {"runs": shown, "releases": sorted(releases.values()), "aliases": aliases}


def own(tags: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    """The mirror's tags; the run that one leads to under the mirror's id."""
    return {
        key: known.get(value, value) for key, value in tags.items() if key.startswith("engine_ci.")
    }


def files(server: MlflowProcess, info: dict) -> dict[str, bytes]:
    folder = info["artifact_uri"].removeprefix("mlflow-artifacts:/")
    return {
        name: server.ask(f"mlflow-artifacts/artifacts/{folder}/{name}")
        for name in ("report.md", "report.html")
    }


def curve(server: MlflowProcess, run_id: str, key: str) -> list[tuple[int, float]]:
    """What MLflow's chart of a metric draws: step and value."""
    page = server.ask(f"mlflow/metrics/get-history?run_id={run_id}&metric_key={key}")
    return sorted((int(point["step"]), point["value"]) for point in page["metrics"])


def shown_by_the_fake(world: World, tmp_path: Path) -> dict:
    outbox = Outbox(tmp_path / "fake.sqlite", registry="0123")
    with mlflow_running() as fake:
        assert not mirror_once(world, fake.uri, outbox).is_behind
    outbox.close()
    files: dict[str, dict[str, bytes]] = {}
    for path, data in fake.artifacts.items():
        files.setdefault(path.split("/")[1], {})[path.rpartition("/")[2]] = data
    known = {run_id: run["tags"]["engine_ci.id"] for run_id, run in fake.runs.items()}
    runs = {
        run["tags"]["engine_ci.id"]: (
            run["info"]["status"],
            run["params"],
            # Of a metric with many steps, MLflow lists the last.
            {key: max(points)[2] for key, points in run["metrics"].items()},
            own(run["tags"], known),
            files.get(run_id, {}),
        )
        for run_id, run in fake.runs.items()
    }
    model = fake.models[MODEL]
    releases = {n: v["tags"]["engine_ci.release"] for n, v in model["versions"].items()}
    aliases = {alias: releases[version] for alias, version in model["aliases"].items()}
    return {"runs": runs, "releases": sorted(releases.values()), "aliases": aliases}


def test_the_chart_of_a_latency_goes_through_each_of_its_percentiles(
    server: MlflowProcess, world: World
):
    engine = sample_engine(world.registry)
    load = samples.speed(100.0, failed=3)
    lanes = (samples.lane(steps=(1, 2, 4, 8)),)
    world.report(engine.digest, performance=load, lanes=lanes, paired=samples.in_turn())
    assert not mirror_once(world, server.uri).is_behind
    found = server.ask(f"mlflow/experiments/get-by-name?experiment_name={quote(EXPERIMENT, '')}")
    asked = {
        "experiment_ids": [found["experiment"]["experiment_id"]],
        "filter": "tags.`engine_ci.kind` = 'gate'",
    }
    (run,) = server.ask("mlflow/runs/search", asked)["runs"]
    drawn = {
        metric["key"]: curve(server, run["info"]["run_id"], metric["key"])
        for metric in run["data"]["metrics"]
        if metric["key"].endswith("_by_percentile")
    }
    want = gate_curves(samples.report(performance=load, lanes=lanes, paired=samples.in_turn()))
    assert drawn == {key: sorted(steps.items()) for key, steps in want.items()}
    assert len(drawn["lane.interactive.at_8.ttft_ms_by_percentile"]) == 99


def test_a_server_killed_in_the_middle_is_brought_up_to_date_without_loss_or_repetition(
    server: MlflowProcess, world: World, tmp_path: Path, proved: Callable[[str], None]
):
    engines(world, 0, ENGINES // 2)
    first = mirror_once(world, server.uri)
    assert not first.is_behind
    engines(world, ENGINES // 2, ENGINES)

    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(mirror_once(world, server.uri)))
    before = len(world.outbox.log("mlflow", 10_000))
    thread.start()
    while len(world.outbox.log("mlflow", 10_000)) < before + 15:
        assert thread.is_alive(), "the mirror was done before the server could be killed"
        time.sleep(0.01)
    server.kill()
    thread.join()
    (cut,) = runs
    assert cut.is_behind

    desk = Desk(registry=world.registry, actor=SAMPLE_ACTOR, clock=utc_now)
    began = time.perf_counter()
    roll_back(desk, SAMPLE_CHANNEL, reason="answers in Latin", overrides=("fit",))
    rollback_ms = (time.perf_counter() - began) * 1000
    assert mirror_once(world, server.uri).is_behind

    restart_s = server.start()
    began = time.monotonic()
    last = mirror_once(world, server.uri)
    took_s = time.monotonic() - began
    assert not last.is_behind
    shown = shown_by(server)
    assert shown == shown_by_the_fake(world, tmp_path)
    assert shown["aliases"] == {"prod": f"tiny/cpu:{ENGINES // 5 - 1}"}

    fresh = Outbox(tmp_path / "lost.sqlite", registry="0123")
    began = time.monotonic()
    again = mirror_once(world, server.uri, fresh)
    again_s = time.monotonic() - began
    fresh.close()
    assert not again.is_behind
    assert shown_by(server) == shown
    sent = [run.tallies[0].sent for run in (first, cut, last, again)]
    proved(
        f"delivered {sent[0]}, then {sent[1]} until the kill, then {sent[2]} in {took_s:.1f} s "
        f"({1000 * took_s / sent[2]:.0f} ms each); restart {restart_s:.1f} s; all {sent[3]} again "
        f"from a lost outbox in {again_s:.1f} s; rollback during the outage {rollback_ms:.1f} ms"
    )
