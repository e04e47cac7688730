"""MLflow shows what the registry holds, once, whatever fails in between."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.tracking.deliver import Run
from engine_pipeline.tracking.mlflow.mirror import MlflowMirror
from engine_pipeline.tracking.mlflow.names import alias_name, build_params, model_name
from engine_pipeline.tracking.mlflow.server import Address, MlflowServer
from engine_registry import layout
from engine_registry.changes import RolledBack
from engine_registry.errors import InvalidInput
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.testing.samples import (
    SAMPLE_PRODUCT,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from tests.servers.mlflow_fake import Mlflow, mlflow_running
from tests.unit.gates import report_samples as samples
from tests.unit.spec.specs import lock_with
from tests.unit.tracking.conftest import World

MODEL = "tiny--cpu"
NOTE = "mlflow.note.content"


@pytest.fixture
def mlflow() -> Iterator[Mlflow]:
    with mlflow_running() as running:
        yield running


def mirror(world: World, uri: str, prefix: str = "", **environment: str) -> MlflowMirror:
    server = MlflowServer(Address.from_environment(uri, environment))
    return MlflowMirror(world.registry, server, prefix=prefix, registry_id="0123456789ab")


def catch_up(world: World, mlflow: Mlflow) -> Run:
    """Run until nothing is waiting."""
    for _ in range(60):
        run = world.run(mirror(world, mlflow.uri))
        if not run.is_behind:
            return run
        world.clock.forward(minutes=15)
    pytest.fail(f"still behind: {run}")


def release(world: World, name: str, outcome: Outcome = Outcome.PASSED):
    engine = sample_engine(world.registry, name)
    world.report(engine.digest, outcome)
    return sample_release(world.registry, engine)


def state(mlflow: Mlflow) -> dict:
    """What a person sees, with the mirror's ids for those that the server gives."""
    known = {run_id: run["tags"]["engine_ci.id"] for run_id, run in mlflow.runs.items()}

    def named(text: str) -> str:
        return re.sub("[0-9a-f]{32}", lambda id_: known.get(id_.group(), id_.group()), text)

    runs = {
        run["tags"]["engine_ci.id"]: (
            run["info"]["status"],
            run["params"],
            {key: sorted(points) for key, points in run["metrics"].items()},
            {
                key: named(value) if key in {"engine_ci.build_run", NOTE} else value
                for key, value in run["tags"].items()
            },
        )
        for run in mlflow.runs.values()
    }
    artifacts = sorted((path.rpartition("/")[2], data) for path, data in mlflow.artifacts.items())
    versions = {
        name: sorted(v["tags"]["engine_ci.release"] for v in model["versions"].values())
        for name, model in mlflow.models.items()
    }
    live_now = {
        (name, alias): model["versions"][version]["tags"]["engine_ci.release"]
        for name, model in mlflow.models.items()
        for alias, version in model["aliases"].items()
    }
    return {"runs": runs, "artifacts": artifacts, "versions": versions, "live": live_now}


def test_a_build_a_gate_and_a_release_show_what_is_known_of_them(world: World, mlflow: Mlflow):
    release(world, "one")
    catch_up(world, mlflow)
    engine = next(world.registry.engines.all_engines())
    build, gate = mlflow.run_of(f"build/{engine.hex}/" + build_key(world)), gate_run(mlflow)
    assert build["info"]["status"] == "FINISHED"
    assert build["params"]["precision"] == "int8"
    assert build["params"]["runtime.xllamacpp"] == "1.0"
    assert build["tags"]["engine_ci.engine"] == str(engine)
    assert build["tags"]["engine_ci.actor"] == "alice"
    assert "size_bytes" in build["metrics"]
    assert gate["tags"]["engine_ci.outcome"] == "passed"
    assert {key: value for key, ((_, step, value), *_) in points(gate) if step == 0} == {
        "load_s": 1.5,
        "score.json": 0.5,
        "ttft_p95_ms": 12.5,
        "ttft_p95_ms.low": 11.0,
    }
    files = {path.rpartition("/")[2]: data for path, data in mlflow.artifacts.items()}
    assert set(files) == {"report.md", "report.html"}
    assert files["report.md"] == b"# the report\n"
    assert f"passed: core on {engine.short}".encode() in files["report.html"]
    version = mlflow.models[MODEL]["versions"]["1"]
    assert version["source"] == f"engine-ci:/tiny/cpu@{engine}"
    assert version["run_id"] == build["info"]["run_id"]


def build_key(world: World) -> str:
    engine = next(world.registry.engines.all_engines())
    return world.registry.engines.records(engine)[0].build_key.hex


def gate_run(mlflow: Mlflow) -> dict:
    (found,) = [r for r in mlflow.runs.values() if r["tags"]["engine_ci.kind"] == "gate"]
    return found


def points(run: dict) -> list[tuple[str, list[tuple[int, int, float]]]]:
    return [(key, sorted(found)) for key, found in run["metrics"].items()]


def test_a_latency_is_a_curve_over_its_percentiles_that_ends_where_requests_failed(
    world: World, mlflow: Mlflow
):
    release(world, "one")
    catch_up(world, mlflow)
    curve = dict(points(gate_run(mlflow)))["ttft_ms_by_percentile"]
    assert [(step, value) for _, step, value in curve] == [(n, 12.5) for n in range(1, 76)]


def test_a_gate_run_leads_to_the_run_of_the_build(world: World, mlflow: Mlflow):
    release(world, "one")
    catch_up(world, mlflow)
    engine = next(world.registry.engines.all_engines())
    build, gate = mlflow.run_of(f"build/{engine.hex}/" + build_key(world)), gate_run(mlflow)
    run_id = build["info"]["run_id"]
    assert gate["tags"]["engine_ci.engine"] == build["tags"]["engine_ci.engine"]
    assert gate["tags"]["engine_ci.build_key"] == build["tags"]["engine_ci.build_key"]
    assert gate["tags"]["engine_ci.build_run"] == run_id
    assert f"(#/experiments/1/runs/{run_id})" in gate["tags"][NOTE]


def test_a_gate_run_leads_nowhere_if_a_person_deleted_the_build(world: World, mlflow: Mlflow):
    engine = sample_engine(world.registry)
    catch_up(world, mlflow)
    for run in mlflow.runs.values():
        run["info"]["lifecycle_stage"] = "deleted"
    world.report(engine.digest)
    catch_up(world, mlflow)
    assert {"engine_ci.build_run", NOTE}.isdisjoint(gate_run(mlflow)["tags"])


def test_more_points_than_one_call_takes_arrive_all_the_same(world: World, mlflow: Mlflow):
    lane = samples.lane(steps=(1, 2, 4, 8))
    engine = sample_engine(world.registry)
    world.report(engine.digest, lanes=(lane,), paired=samples.in_turn())
    catch_up(world, mlflow)
    run = gate_run(mlflow)
    assert sum(map(len, run["metrics"].values())) > 1000
    assert len(run["metrics"]["lane.interactive.at_8.e2e_ms_by_percentile"]) == 99


def test_the_page_is_set_beside_what_was_live_then(world: World, mlflow: Mlflow):
    sample_event(world.registry, sample_promotion(release(world, "one")))
    world.clock.forward(seconds=1)
    engine = sample_engine(world.registry, "two")
    world.report(engine.digest)
    catch_up(world, mlflow)
    pages = [data for path, data in mlflow.artifacts.items() if path.endswith(".html")]
    assert sum(b"Live is tiny/cpu/prod, release 1" in page for page in pages) == 1


def test_a_failed_engine_is_a_finished_run_and_an_errored_gate_a_failed_one(
    world: World, mlflow: Mlflow
):
    engine = sample_engine(world.registry)
    world.report(engine.digest, Outcome.FAILED)
    world.clock.forward(seconds=1)
    world.report(engine.digest, Outcome.ERRORED)
    catch_up(world, mlflow)
    shown = {
        run["tags"]["engine_ci.outcome"]: run["info"]["status"]
        for run in mlflow.runs.values()
        if run["tags"]["engine_ci.kind"] == "gate"
    }
    assert shown == {"failed": "FINISHED", "errored": "FAILED"}


def test_an_alias_follows_its_channel_back_and_forth(world: World, mlflow: Mlflow):
    first, second = release(world, "one"), release(world, "two")
    for one in (first, second):
        sample_event(world.registry, sample_promotion(one))
    catch_up(world, mlflow)
    assert state(mlflow)["live"] == {(MODEL, "prod"): "tiny/cpu:2"}
    sample_event(world.registry, RolledBack(to=live(first), reason="Latin"))
    catch_up(world, mlflow)
    assert state(mlflow)["live"] == {(MODEL, "prod"): "tiny/cpu:1"}
    tag = mlflow.models[MODEL]["tags"]["engine_ci.channel.prod"]
    assert tag.startswith("tiny/cpu:1 since 2026-03-01")
    assert tag.endswith("event 3")


def test_a_late_event_never_takes_an_alias_back(world: World, mlflow: Mlflow):
    """Only what is live now is written, whichever event brought the mirror here."""
    first, second = release(world, "one"), release(world, "two")
    sample_event(world.registry, sample_promotion(first))
    old = next(fact for fact in world.feed().facts() if fact.kind == "promoted")
    sample_event(world.registry, sample_promotion(second))
    catch_up(world, mlflow)
    mirror(world, mlflow.uri).deliver(old, delivery="d", attempt=9)
    assert state(mlflow)["live"] == {(MODEL, "prod"): "tiny/cpu:2"}


def test_mirroring_again_from_a_lost_outbox_changes_nothing(world: World, mlflow: Mlflow, tmp_path):
    sample_event(world.registry, sample_promotion(release(world, "one")))
    catch_up(world, mlflow)
    before, writes = state(mlflow), len(mlflow.writes)
    other = World(world.registry, type(world.outbox)(tmp_path / "new.sqlite", "0123"), world.clock)
    catch_up(other, mlflow)
    other.outbox.close()
    assert state(mlflow) == before
    # The note of what is live is set again; nothing is created.
    assert set(mlflow.writes[writes:]) == {"registered-models/set-tag"}


@pytest.mark.parametrize("kind", [503, None], ids=["refused", "reply lost"])
def test_a_server_that_fails_at_any_call_ends_up_with_the_same(
    world: World, mlflow: Mlflow, kind, tmp_path
):
    sample_event(world.registry, sample_promotion(release(world, "one")))
    catch_up(world, mlflow)
    want, calls = state(mlflow), 0
    while True:
        with mlflow_running() as other:
            box = type(world.outbox)(tmp_path / f"{calls}.sqlite", "0123")
            fresh = World(world.registry, box, world.clock)
            other.broken.extend([200] * calls + [kind] * 3)
            catch_up(fresh, other)
            box.close()
            assert state(other) == want, f"failing at call {calls}"
            if other.broken:  # there are not so many calls
                break
            calls += 1
    assert calls > 15


def test_a_server_that_was_down_is_brought_up_to_date(world: World, mlflow: Mlflow):
    sample_event(world.registry, sample_promotion(release(world, "one")))
    run = world.run(mirror(world, "http://127.0.0.1:9"))
    assert run.is_behind
    assert "127.0.0.1:9" in run.tallies[0].error
    world.clock.forward(minutes=1)
    catch_up(world, mlflow)
    assert state(mlflow)["live"] == {(MODEL, "prod"): "tiny/cpu:1"}


def test_what_a_person_deleted_there_stays_deleted(world: World, mlflow: Mlflow):
    release(world, "one")
    catch_up(world, mlflow)
    for run in mlflow.runs.values():
        run["info"]["lifecycle_stage"] = "deleted"
    count = len(mlflow.runs)
    mlflow.models.clear()
    fresh = [fact for fact in world.feed().facts() if fact.kind == "released"]
    assert fresh == []
    sample_event(
        world.registry,
        sample_promotion(world.registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))),
    )
    catch_up(world, mlflow)
    assert len(mlflow.runs) == count
    assert mlflow.models[MODEL]["versions"]["1"]["run_id"] is None


def test_a_model_of_somebody_else_is_left_alone_and_the_rest_is_mirrored(
    world: World, mlflow: Mlflow
):
    release(world, "one")
    mlflow.models[MODEL] = {"tags": {}, "versions": {}, "aliases": {}}
    run = world.run(mirror(world, mlflow.uri))
    assert "belongs to somebody else" in run.tallies[0].error
    assert run.tallies[0].waiting == 1
    assert len(mlflow.runs) == 2
    assert mlflow.models[MODEL]["versions"] == {}


def test_a_deleted_experiment_is_named_and_not_made_again(world: World, mlflow: Mlflow):
    release(world, "one")
    catch_up(world, mlflow)
    for experiment in mlflow.experiments.values():
        experiment["lifecycle_stage"] = "deleted"
    release(world, "two")
    run = world.run(mirror(world, mlflow.uri))
    assert "engine-ci/tiny/cpu was deleted there" in run.tallies[0].error
    assert len(mlflow.experiments) == 1


def test_a_prefix_keeps_two_registries_apart(world: World, mlflow: Mlflow):
    release(world, "one")
    world.run(mirror(world, mlflow.uri, prefix="site-b"))
    assert list(mlflow.models) == ["site-b--tiny--cpu"]
    assert [e["name"] for e in mlflow.experiments.values()] == ["site-b/tiny/cpu"]


def test_an_engine_that_was_removed_meanwhile_is_left_out(world: World, mlflow: Mlflow):
    engine = sample_engine(world.registry)
    world.outbox.register(["mlflow"])
    feed = world.feed()
    world.outbox.take_in(list(feed.facts()), feed.positions)
    record = layout.record(engine.digest, engine.records[0].build_key)
    world.registry.stores.trash.discard(record, timedelta(0))
    assert not world.run(mirror(world, mlflow.uri)).is_behind
    assert mlflow.runs == {}
    assert "left out" in world.outbox.log(None, 1)[0].detail


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        (
            {"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "swordfish"},
            f"Basic {base64.b64encode(b'u:swordfish').decode()}",
        ),
        ({"MLFLOW_TRACKING_TOKEN": "swordfish"}, "Bearer swordfish"),
    ],
)
def test_credentials_come_from_mlflows_own_variables_and_are_not_shown(
    world: World, mlflow: Mlflow, environment, header
):
    mlflow.authorization = header
    release(world, "one")
    without = world.run(mirror(world, mlflow.uri))
    assert "401" in without.tallies[0].error
    world.clock.forward(minutes=1)
    run = world.run(mirror(world, mlflow.uri, **environment))
    assert not run.is_behind
    assert "swordfish" not in str(world.outbox.log(None, 100))


@pytest.mark.parametrize("uri", ["sqlite:///x.db", "databricks", "file:///x", "http://u:p@host"])
def test_an_address_that_is_not_a_tracking_server_is_refused(uri):
    with pytest.raises(InvalidInput):
        Address.from_environment(uri, {})


def test_names_are_those_that_mlflow_takes():
    assert model_name("", ProductRef("llama-3.1", "h100")) == "llama-3.1--h100"
    assert [alias_name(name) for name in ("prod", "v1", "latest", "eu.west")] == [
        "prod",
        "channel-v1",
        "channel-latest",
        "eu-dot-west",
    ]


def test_parameters_come_from_the_lock_where_it_can_be_read(world: World):
    engine = sample_engine(world.registry)
    params = build_params(engine.records[0], None)
    assert params["build_key"] == str(engine.records[0].build_key)
    assert "revision" not in params
    params = build_params(engine.records[0], lock_with())
    assert params["source"] == "hf://org/tiny"
    assert params["revision"] == "c" * 40
    assert params["backend_version"] == "1.2.1"
    assert params["limits.max_batch_size"] == "4"


def test_a_channel_with_a_name_that_mlflow_keeps_for_itself_is_mirrored(
    world: World, mlflow: Mlflow
):
    one = release(world, "one")
    ref = ChannelRef(SAMPLE_PRODUCT, "latest")
    sample_event(world.registry, sample_promotion(one), ref=ref)
    catch_up(world, mlflow)
    assert state(mlflow)["live"] == {(MODEL, "channel-latest"): "tiny/cpu:1"}
