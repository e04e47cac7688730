"""The build act, with a small backend and a runner that works in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from engine_pipeline.backends.port import (
    EngineFacts,
    EngineFile,
    Mismatch,
    OwnWords,
    ServeCommand,
)
from engine_pipeline.build.build import build, plan_build
from engine_pipeline.build.machine import Machine
from engine_pipeline.build.plan import Step, step_key
from engine_pipeline.build.provenance import parameter_size
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.build.workshop import BuildBackend
from engine_pipeline.progress import Silent
from engine_pipeline.runners.port import StepResult
from engine_pipeline.spec.hardware import Host, find_sku
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, Unavailable
from engine_registry.manifest import LOCK_ARTIFACT, PROVENANCE_ARTIFACT, WEIGHT
from engine_registry.record import Actor
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty

LOCK_BYTES = b'{"lock": "as committed"}'
ALICE = Actor(name="alice", proved_by="os-user")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GIB = 1 << 30


@dataclass
class ToyBackend:
    """Two steps; the engine is one file whose text says how it was made."""

    kind = "llama-cpp"
    words = OwnWords()
    flag: str = "fast"
    mismatches: tuple[Mismatch, ...] = ()

    def check(self, spec):
        if spec.precision.weights == "fp8":
            raise Incompatible("fp8: not here", hint="int8", reference="precision-unsupported")

    def plan(self, _lock):
        fetch = self._step(("get",), (), "fetch", ("m.bin",))
        make = self._step(("make", self.flag), (fetch,), "make", ("engine.bin",))
        return fetch, make

    def _step(self, argv, inputs, name, outputs):
        return Step(
            name=name,
            title=name.title(),
            argv=argv,
            inputs=tuple(step.name for step in inputs),
            outputs=outputs,
            disk_bytes=GIB,
            ram_bytes=GIB,
            key=step_key(argv, {}, inputs),
        )

    def inspect(self, engine_dir):
        path = engine_dir / "engine.bin"
        return EngineFacts(
            kind="llama-cpp",
            format="toy",
            format_version="1",
            architecture="llama",
            tensor_types={},
            parameters=134_515_008,
            files=(
                EngineFile(path="engine.bin", size_bytes=path.stat().st_size, media_type=WEIGHT),
            ),
            details={"recipe": "q8_0"},
        )

    def compare(self, _lock, _facts):
        return self.mismatches

    def serve(self, _facts, _runtime_config):
        return ServeCommand(argv=("x",), model_name="x")

    def tools(self):
        return {"tool": "1"}

    def runtime(self):
        return {"toy-runtime": "9"}


@dataclass
class ToyRunner:
    """Runs toy steps here; `fails_at` names one that dies."""

    fails_at: str | None = None
    ran: list[str] = field(default_factory=list)

    def run(self, step, paths, _progress):
        self.ran.append(step.name)
        if step.name == self.fails_at:
            (paths.output / step.outputs[0]).write_text("half")
            raise KeyboardInterrupt
        before = "".join((path / "m.bin").read_text() for path in paths.inputs.values())
        (paths.output / step.outputs[0]).write_text(f"{before} {' '.join(step.argv)} {paths.lock}")
        return StepResult(wall_s=2.5, peak_rss_bytes=len(self.ran) * 1000)


@dataclass
class Shop:
    """Everything a build needs, each part open to change."""

    registry: Registry
    cache: StepCache
    runner: ToyRunner = field(default_factory=ToyRunner)
    backend: BuildBackend = field(default_factory=ToyBackend)
    machine: Machine = field(
        default_factory=lambda: Machine(
            host=Host(architecture="x86_64", flags=find_sku("cpu-x86-64-v3").flags),
            cpu_model="Toy CPU",
            cores=2,
            ram_bytes=16 * GIB,
            ram_free_bytes=8 * GIB,
        )
    )

    def build(self, lock, registry=None):
        return build(
            lock,
            LOCK_BYTES,
            lock_path=self.cache.root / "toy.lock.json",
            registry=registry or self.registry,
            runner=self.runner,
            cache=self.cache,
            backend=self.backend,
            machine=self.machine,
            progress=Silent(),
            actor=ALICE,
            clock=lambda: NOON,
        )


@pytest.fixture
def shop(tmp_path):
    return Shop(
        registry=open_registry(str(tmp_path / "registry"), lambda: NOON),
        cache=StepCache(tmp_path / "cache"),
    )


def test_a_build_puts_a_whole_engine_into_the_registry(shop, make_lock):
    lock = make_lock()
    result = shop.build(lock)
    assert result.reused is None
    assert [(step.name, step.reused) for step in result.steps] == [
        ("fetch", False),
        ("make", False),
    ]
    engine = shop.registry.engines.check_engine(result.engine)
    (record,) = engine.records
    assert record.build_key == result.build_key == plan_build(lock, shop.backend).build_key
    assert (record.model, record.target, record.precision) == ("toy", "cpu-x86-64-v3", "int8")
    assert record.platform.runtime == {"toy-runtime": "9"}
    assert record.platform.sku == "cpu-x86-64-v3"
    assert (record.build_wall_s, record.build_peak_rss_bytes) == (5.0, 2000)
    assert (record.built_by, record.built_at) == (ALICE, NOON)
    assert record.lock == Digest.of(LOCK_BYTES)
    assert [layer.title for layer in engine.manifest.layers] == ["engine.bin"]


def test_the_manifest_says_what_the_model_is(shop, make_lock):
    engine = shop.registry.engines.engine(shop.build(make_lock()).engine)
    config = json.loads(shop.registry.engines.read_blob(engine.manifest.config.digest))
    assert config["descriptor"] == {"name": "toy", "family": "llama"}
    assert config["config"] == {
        "architecture": "transformer",
        "format": "toy",
        "paramSize": "134.5m",
        "precision": "int8",
        "quantization": "q8_0",
    }


def test_lock_and_provenance_are_attached(shop, make_lock):
    digest = shop.build(make_lock()).engine
    engines = shop.registry.engines
    (lock,) = engines.referrers(digest, LOCK_ARTIFACT)
    assert engines.read_attachment(lock.manifest) == {"build.lock.json": LOCK_BYTES}
    (link,) = engines.referrers(digest, PROVENANCE_ARTIFACT)
    statement = json.loads(engines.read_attachment(link.manifest)["provenance.json"])
    assert statement["subject"] == [{"name": "toy/cpu-x86-64-v3", "digest": {"sha256": digest.hex}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"] == [
        {"uri": "file://toy@one#m.bin", "digest": {"sha256": "a" * 64}}
    ]
    assert [step["name"] for step in definition["internalParameters"]["steps"]] == ["fetch", "make"]
    assert definition["externalParameters"]["spec"]["model"]["name"] == "toy"


def test_the_same_lock_again_is_answered_from_the_registry(shop, make_lock):
    first = shop.build(make_lock())
    again = shop.build(make_lock())
    assert (again.engine, again.reused, again.steps) == (first.engine, "engine", ())
    assert shop.runner.ran == ["fetch", "make"]


def test_other_limits_are_another_key_and_repeat_no_step(shop, make_lock):
    first = shop.build(make_lock())
    limits = make_lock().spec.limits.model_dump() | {"max_batch_size": 4}
    other = shop.build(make_lock(limits=limits))
    assert other.build_key != first.build_key
    assert other.engine == first.engine
    assert [step.reused for step in other.steps] == [True, True]
    assert len(shop.registry.engines.records(first.engine)) == 2


def test_another_flag_repeats_the_step_it_belongs_to_and_no_other(shop, make_lock):
    first = shop.build(make_lock())
    shop.backend = ToyBackend(flag="small")
    other = shop.build(make_lock(backend={"kind": "llama-cpp", "version": "2.0"}))
    assert other.engine != first.engine
    assert [step.reused for step in other.steps] == [True, False]


def test_a_killed_build_goes_on_at_its_first_unfinished_step(shop, make_lock):
    shop.runner = ToyRunner(fails_at="make")
    with pytest.raises(KeyboardInterrupt):
        shop.build(make_lock())
    assert not (shop.cache.root.parent / "registry").exists()
    shop.runner = ToyRunner()
    result = shop.build(make_lock())
    assert shop.runner.ran == ["make"]
    assert [step.reused for step in result.steps] == [True, False]


@pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])
def test_a_build_that_died_at_any_write_of_the_registry_is_finished_by_a_rerun(
    shop, make_lock, mode
):
    plan = FaultPlan()
    clean = Shop(
        registry=open_registry(str(shop.cache.root.parent / "clean"), lambda: NOON),
        cache=shop.cache,
    )
    wanted = clean.build(make_lock(), Registry(faulty(clean.registry.stores, plan), lambda: NOON))
    assert plan.writes > 5
    for at in range(1, plan.writes + 1):
        registry = open_registry(str(shop.cache.root.parent / f"at-{at}"), lambda: NOON)
        dying = Registry(faulty(registry.stores, FaultPlan(at=at, mode=mode)), lambda: NOON)
        with pytest.raises(SimulatedCrash):
            shop.build(make_lock(), dying)
        result = shop.build(make_lock(), registry)
        assert result.engine == wanted.engine
        assert registry.engines.check_engine(wanted.engine).digest == wanted.engine
        assert shop.build(make_lock(), registry).reused == "engine"


def test_an_engine_with_a_missing_byte_is_no_hit_and_is_mended(shop, make_lock):
    result = shop.build(make_lock())
    layer = shop.registry.engines.engine(result.engine).manifest.layers[0]
    blob = shop.cache.root.parent / "registry" / "blobs" / "sha256" / layer.digest.hex
    blob.unlink()
    again = shop.build(make_lock())
    assert (again.engine, again.reused) == (result.engine, None)
    assert [step.reused for step in again.steps] == [True, True]
    assert blob.exists()


def test_an_engine_that_is_not_what_was_asked_for_stays_out_of_the_registry(shop, make_lock):
    shop.backend = ToyBackend(
        mismatches=(
            Mismatch(what="context", wanted="4096", found="512", hint="lower it"),
            Mismatch(what="recipe", wanted="q8_0", found="q4_0", hint="again"),
        )
    )
    with pytest.raises(Incompatible) as caught:
        shop.build(make_lock())
    assert caught.value.name == "engine-differs-from-lock"
    assert (
        "context: wanted 4096, found 512; recipe: wanted q8_0, found q4_0" in caught.value.message
    )
    assert caught.value.hint == "lower it"
    assert not (shop.cache.root.parent / "registry").exists()


def test_what_the_backend_refuses_starts_nothing(shop, make_lock):
    with pytest.raises(Incompatible, match="fp8"):
        shop.build(make_lock(precision={"weights": "fp8"}))
    assert shop.runner.ran == []


@pytest.mark.parametrize(
    ("sku", "free", "reference"),
    [
        ("cpu-x86-64-v4", 8 * GIB, "target-not-this-machine"),
        ("cpu-x86-64-v3", GIB - 1, "ram-short"),
    ],
)
def test_preflight_refuses_before_any_step(shop, make_lock, sku, free, reference):
    machine = shop.machine
    shop.machine = Machine(
        host=machine.host, cpu_model="", cores=1, ram_bytes=8 * GIB, ram_free_bytes=free
    )
    with pytest.raises((Incompatible, Unavailable)) as caught:
        shop.build(make_lock(sku))
    assert caught.value.name == reference
    assert shop.runner.ran == []


def test_room_is_wanted_only_for_steps_that_have_to_run(shop, make_lock, monkeypatch):
    monkeypatch.setattr("engine_pipeline.build.build.free_disk_bytes", lambda _: 2 * GIB)
    with pytest.raises(Unavailable) as caught:
        shop.build(make_lock())
    assert caught.value.name == "disk-short"
    assert "need 2.50 GiB" in caught.value.message
    monkeypatch.undo()
    shop.runner = ToyRunner(fails_at="make")
    with pytest.raises(KeyboardInterrupt):
        shop.build(make_lock())
    shop.runner = ToyRunner()
    monkeypatch.setattr("engine_pipeline.build.build.free_disk_bytes", lambda _: 2 * GIB)
    assert shop.build(make_lock()).engine


def test_a_plan_is_pure_and_says_the_same_twice(make_lock):
    assert plan_build(make_lock(), ToyBackend()) == plan_build(make_lock(), ToyBackend())


@pytest.mark.parametrize(
    ("count", "text"),
    [(134_515_008, "134.5m"), (8_000_000_000, "8b"), (1_700_000_000, "1.7b"), (999, "999")],
)
def test_parameter_counts_are_short(count, text):
    assert parameter_size(count) == text
