"""The build act and gate zero with the toolkit's stand-in: keys, record, refusals, what is kept."""

from __future__ import annotations

import json
import os

import pytest

from engine_pipeline.build.build import plan_build
from engine_pipeline.build.kept import KEPT_ARTIFACT, KEPT_DIGEST, KEPT_FILE
from engine_pipeline.cli.app import run
from engine_pipeline.deploy.node import fit_on_machine
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.nodes import memory_to_load
from engine_pipeline.runners.port import StepFailed
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Incompatible, Unavailable
from engine_registry.export import export_oci_layout
from engine_registry.manifest import PROVENANCE_ARTIFACT
from tests.standin.install import install
from tests.unit.trtllm.works import BACKEND, DRIVER, Works, machine

STRIPPED = {"backend__options": {"strip-plan": True}}


@pytest.fixture
def works(tmp_path, monkeypatch):
    installed = install(tmp_path / "standin", "1.2.1")
    monkeypatch.setenv("PATH", f"{installed.bin_dir}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Works(tmp_path, installed)


class TestRecord:
    def test_says_what_the_engine_is_bound_to(self, works):
        platform = works.record(works.build().engine).platform
        assert platform.sku == "h100-sxm-80gb"
        assert (platform.sm, platform.driver) == (90, DRIVER)
        # From the plan's header, and from the release's row.
        assert (platform.tensorrt, platform.cuda) == ("10.14.1.48", "13.1.0")
        assert platform.runtime["tensorrt_llm"] == "1.2.1"

    def test_has_the_driver_in_its_provenance_too(self, works):
        engine = works.build().engine
        [link] = works.registry.engines.referrers(engine, PROVENANCE_ARTIFACT)
        said = works.registry.engines.read_attachment(link.manifest)["provenance.json"]
        parameters = json.loads(said)["predicate"]["buildDefinition"]["internalParameters"]
        assert parameters["host"] == {"driver": DRIVER}


class TestDriver:
    def test_is_an_input_of_what_a_gpu_leaves(self, works):
        locked = works.lock()
        plans = [plan_build(locked, BACKEND, machine(driver)) for driver in ("590.44.01", "600.10")]
        assert plans[0].build_key != plans[1].build_key
        keys = [{step.name: step.key for step in plan.steps} for plan in plans]
        moved = [name for name in keys[0] if keys[0][name] != keys[1][name]]
        assert moved == ["checkpoint", "compile", "engine"]

    def test_of_a_machine_that_cannot_build_this_is_none(self, works):
        locked = works.lock(target__sku="l40s-48gb")
        assert plan_build(locked, BACKEND, machine()) == plan_build(locked, BACKEND)
        assert plan_build(locked, BACKEND, machine(driver=None)) == plan_build(locked, BACKEND)

    def test_that_is_newer_builds_anew_and_the_same_one_reuses(self, works):
        first = works.build()
        assert works.build().reused == "engine"
        works.machine = machine("600.10")
        second = works.build()
        assert second.reused is None
        assert [step.name for step in second.steps if step.reused] == ["fetch"]
        assert works.record(second.engine).platform.driver == "600.10"
        assert second.engine != first.engine

    def test_that_is_older_than_the_release_wants_is_refused_before_anything_runs(self, works):
        works.machine = machine("570.10")
        with pytest.raises(Incompatible) as refused:
            works.build()
        assert "590.44.01" in refused.value.message
        assert "570.10" in refused.value.message
        assert not (works.cache.root / "steps").exists()

    def test_that_differs_is_what_explain_names(self, works, monkeypatch, capsys):
        first = works.build().engine
        works.machine = machine("600.10")
        second = works.build().engine
        monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{works.root}/registry")
        assert run(["explain", str(first), str(second), "--output", "json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["build_keys"] == [
            str(works.record(engine).build_key) for engine in (first, second)
        ]
        assert [(m["path"], m["locked"], m["now"]) for m in said["differ"]] == [
            ("host.driver", DRIVER, "600.10")
        ]


class TestNode:
    def test_has_memory_as_one_of_its_rules(self, works):
        record = works.record(works.build().engine)
        needed = memory_to_load(works.registry, record.engine, record.digest)
        assert needed is not None
        found = {
            finding.rule: finding
            for finding in fit_on_machine(
                record.platform, works.machine, serves_its_image=True, needed_bytes=needed
            )
        }
        assert f"a rank needs {-(-needed // (1 << 20))} MiB" in found["memory"].says
        assert all(finding.holds for finding in found.values())

    def test_is_asked_for_memory_by_check(self, works, monkeypatch, capsys, tmp_path):
        record = works.record(works.build().engine)
        board = {"name": "NVIDIA H100 80GB HBM3", "sm": 90, "memory_mib": 81559, "free_mib": 100}
        described = {
            "name": "full",
            "driver": DRIVER,
            "tensorrt": record.platform.tensorrt,
            "tensorrt_llm": "1.2.1",
            "gpus": [board],
        }
        (tmp_path / "full.json").write_text(json.dumps({"schema_version": 1, **described}))
        monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{works.root}/registry")
        given = ["check", str(record.engine), "--node", str(tmp_path / "full.json")]
        assert run([*given, "--output", "json"]) == 6
        rules = json.loads(capsys.readouterr().out)["rules"]
        assert [rule["rule"] for rule in rules if not rule["holds"]] == ["memory"]


class TestFailure:
    """A step's own text decides what its failure is called."""

    @pytest.mark.parametrize(
        ("fact", "kind", "reference"),
        [
            ("gpu_oom", Unavailable, "gpu-memory-short"),
            ("unknown_flag", Incompatible, "unknown-flag"),
            ("build_failed", EngineCIError, "build-failed"),
        ],
    )
    def test_is_explained_and_leads_to_the_log(self, works, fact, kind, reference):
        works.installed.set(fail={"trtllm-build": fact})
        with pytest.raises(kind) as failed:
            works.build()
        assert failed.value.name == reference
        assert "step compile" in failed.value.message
        path = failed.value.hint.rpartition("its output is in ")[2]
        assert path.startswith(str(works.cache.root / "logs"))

    def test_that_stands_far_above_a_traceback_is_found(self, works):
        lines = ["Error Code 2: OutOfMemory", *("  File x" for _ in range(60)), "RuntimeError"]
        works.installed.set(fail={"trtllm-build": "say"}, message="\n".join(lines))
        with pytest.raises(Unavailable) as failed:
            works.build()
        assert failed.value.name == "gpu-memory-short"

    def test_that_nobody_knows_keeps_its_exit_code(self, works):
        works.installed.set(fail={"trtllm-build": "say"}, message="Segmentation fault")
        with pytest.raises(StepFailed, match="exit code 1: Segmentation fault"):
            works.build()


class TestAgreement:
    """Spec, device and engine, held against each other after the build."""

    def test_what_the_builder_changed_fails_the_build_and_nothing_is_recorded(self, works):
        works.installed.set(adjust={"max_num_tokens": 1024})
        with pytest.raises(Incompatible) as refused:
            works.build()
        assert refused.value.name == "engine-differs-from-lock"
        assert "max_num_tokens: wanted 2048, found 1024" in refused.value.message
        assert not (works.root / "registry").exists()

    def test_what_the_spec_allows_is_in_the_engine_that_is_recorded(self, works, tmp_path):
        works.installed.set(adjust={"max_num_tokens": 1024})
        built = works.build(backend__options={"allow-adjusted": "max_num_tokens"})
        works.registry.engines.materialise(built.engine, tmp_path / "out")
        facts = BACKEND.inspect(tmp_path / "out")
        assert facts.details["build_config"]["max_num_tokens"] == 1024

    def test_another_release_than_the_spec_says_fails_the_build(self, works):
        install(works.installed.root, "1.2.0")
        with pytest.raises(Incompatible, match=r"TensorRT-LLM: wanted 1\.2\.1, found 1\.2\.0"):
            works.build()

    def test_another_board_than_the_spec_says_is_refused_before_the_build(self, works):
        with pytest.raises(Incompatible) as refused:
            works.build(target__sku="h200-sxm-141gb", precision={"weights": "fp16"})
        assert "H200" in refused.value.message
        assert "H100" in refused.value.message


class TestTimingCache:
    def kept(self, works, engine):
        [link] = works.registry.engines.referrers(engine, KEPT_ARTIFACT)
        assert link.annotations[KEPT_FILE] == "model.cache"
        data = works.registry.engines.read_attachment(link.manifest)["model.cache"]
        assert link.annotations[KEPT_DIGEST] == str(Digest.of(data))
        return data

    def test_is_kept_with_the_engine_under_its_digest_and_is_no_part_of_it(self, works):
        engine = works.build().engine
        assert self.kept(works, engine)
        titles = [layer.title for layer in works.registry.engines.engine(engine).manifest.layers]
        assert "model.cache" not in titles

    def test_is_written_out_with_the_engine(self, works, tmp_path):
        engine = works.build().engine
        data = self.kept(works, engine)
        export_oci_layout(works.registry, engine, tmp_path / "out")
        blob = tmp_path / "out" / "blobs" / "sha256" / Digest.of(data).hex
        assert blob.read_bytes() == data

    def test_of_one_build_is_an_input_of_the_next(self, works):
        data = self.kept(works, works.build().engine)
        (works.root / "locks" / "h100.cache").write_bytes(data)
        options = {"timing-cache": "h100.cache", "timing-cache-digest": str(Digest.of(data))}
        second = works.build(backend__options=options)
        assert [step.name for step in second.steps if step.reused] == ["fetch", "checkpoint"]
        assert self.kept(works, second.engine)


class TestRefit:
    def test_reuses_the_plan_for_other_weights_and_is_an_engine_of_its_own(self, works):
        first = works.build(**STRIPPED)
        second = works.build("tuned", **STRIPPED)
        assert [step.name for step in second.steps if step.reused] == ["compile"]
        assert second.engine != first.engine
        assert second.build_key != first.build_key
        keys = [{step.name: step.key for step in built.steps} for built in (first, second)]
        assert keys[0]["compile"] == keys[1]["compile"]
        assert keys[0]["refit"] != keys[1]["refit"]

    def test_is_judged_by_nothing_that_was_said_of_the_plan_s_first_weights(self, works):
        first = works.build(**STRIPPED).engine
        assert works.gate(first).outcome is Outcome.PASSED
        second = works.build("tuned", **STRIPPED).engine
        reports = works.registry.engines.referrers(second)
        assert not [link for link in reports if "gate" in link.artifact_type]
        assert works.gate(second).outcome is Outcome.PASSED

    def test_that_fails_leaves_no_engine_and_keeps_the_plan(self, works):
        works.installed.set(fail={"trtllm-refit": "say"}, message="weights are missing")
        with pytest.raises(StepFailed, match="step refit failed"):
            works.build(**STRIPPED)
        assert not (works.root / "registry").exists()
        works.installed.set(fail={})
        again = works.build(**STRIPPED)
        assert [step.name for step in again.steps if step.reused][-1] == "compile"


class TestGateZero:
    def test_passes_an_engine_that_loads_without_a_warning(self, works):
        report = works.gate(works.build().engine)
        assert report.outcome is Outcome.PASSED
        assert report.load.warnings == ()

    def test_says_what_does_not_fit_in_an_engine_that_does_not_load(self, works):
        engine = works.build().engine
        works.installed.set(board="NVIDIA L40S")
        report = works.gate(engine)
        assert report.outcome is Outcome.FAILED
        assert "this GPU has 8.9, the plan is for 9.0" in report.load.reason
        assert "(other-compute-capability)" in report.load.reason
        assert report.load.log

    def test_does_not_blame_the_engine_for_memory_that_somebody_else_holds(self, works):
        engine = works.build().engine
        text = "Failed to allocate memory for weights."
        works.installed.set(fail={"trtllm-serve": "say"}, message=text)
        report = works.gate(engine)
        assert report.outcome is Outcome.ERRORED
        assert "(weights-do-not-fit)" in report.load.reason

    def test_believes_the_text_of_a_server_that_hangs_instead_of_ending(self, works):
        engine = works.build().engine
        works.installed.set(
            fail={"trtllm-serve": "hang"}, message="Assertion failed: d == a + length"
        )
        report = works.gate(engine, load_timeout_s=1)
        assert report.outcome is Outcome.FAILED
        assert "(other-tensorrt-llm)" in report.load.reason
        assert "not ready after 1 s" in report.load.reason

    def test_reports_the_warning_of_another_board_although_it_loads(self, works):
        engine = works.build().engine
        works.installed.set(board="NVIDIA H200")
        report = works.gate(engine)
        assert report.load.outcome is Outcome.PASSED
        [warning] = report.load.warnings
        assert "another board of the same capability" in warning
        assert warning in report.load.reason
