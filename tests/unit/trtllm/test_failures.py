"""How the toolkit fails, and what is made of it: messages, exit codes, directories left behind."""

from __future__ import annotations

import pytest

from engine_pipeline.backends.trtllm.failures import explain_load, explain_step, load_warnings
from engine_registry.errors import EngineCIError, ExitCode, InvalidInput
from tests.standin.install import facts_of
from tests.unit.trtllm.conftest import StepFailed
from tests.unit.trtllm.models import CALIBRATION
from tests.unit.trtllm.test_build_flow import BACKEND, Story, precision

MESSAGES = facts_of("1.2.1")["messages"]
# Failures of trtllm-build by the facts' names, what each is called here, and its exit code.
BUILD = {
    "unknown_flag": ("unknown-flag", ExitCode.INCOMPATIBLE),
    "bad_choice": ("bad-choice", ExitCode.INCOMPATIBLE),
    "no_input": ("no-input", ExitCode.BUG),
    "bad_checkpoint_dir": ("checkpoint-missing", ExitCode.BUG),
    "unsupported_arch": ("unsupported-architecture", ExitCode.INCOMPATIBLE),
    "build_failed": ("build-failed", ExitCode.BUG),
    "gpu_oom": ("gpu-memory-short", ExitCode.UNAVAILABLE),
    "scratch": ("scratch-short", ExitCode.UNAVAILABLE),
    "fp8_paged": ("fp8-paged-fmha", ExitCode.INCOMPATIBLE),
    "int8kv_paged": ("int8-paged-fmha", ExitCode.INCOMPATIBLE),
    "profiles_conflict": ("profiles-conflict", ExitCode.INVALID),
    "quantize_no_gpu": ("no-gpu", ExitCode.UNAVAILABLE),
}
LOAD = {
    "wrong_sm": "other-compute-capability",
    "wrong_trt": "other-tensorrt",
    "wrong_trtllm": "other-tensorrt-llm",
    "generic": "does-not-deserialise",
    "missing_engine_file": "engine-file-missing",
    "missing_config": "config-missing",
    "tp_mismatch": "ranks-differ",
    "old_engine": "engine-too-old",
    "kv_reuse_without_paged_fmha": "reuse-without-paged-fmha",
    "weights_oom": "weights-do-not-fit",
}


def test_every_message_of_the_facts_is_known_here():
    # Exit 137 leaves no message of its own, and one is a message of success.
    assert set(MESSAGES["build"]) == {*BUILD, "host_oom", "ok"}
    assert set(MESSAGES["load"]) == {*LOAD, "same_sm_other_sku"}


@pytest.mark.parametrize(("fact", "known"), BUILD.items())
def test_a_step_that_fails_with_a_known_message_says_what_it_means(tmp_path, bench, fact, known):
    story = Story(tmp_path)
    with pytest.raises(StepFailed) as failed:
        story.build(bench(fail={"trtllm-build": fact}), checkpoint=tmp_path)
    assert failed.value.status == MESSAGES["build"][fact].get("exit", 1)
    error = explain_step("compile", failed.value.lines)
    assert error is not None
    assert (error.name, error.exit_code) == known
    assert "compile" in error.message
    assert error.hint


def test_a_step_killed_for_memory_ends_like_the_kernel_ends_it(tmp_path, bench):
    with pytest.raises(StepFailed) as failed:
        Story(tmp_path).build(bench(fail={"trtllm-build": "host_oom"}), checkpoint=tmp_path)
    assert failed.value.status == -9
    assert explain_step("compile", failed.value.lines) is None


def test_quantisation_without_a_gpu_is_refused_by_the_toolkit_itself(tmp_path, bench):
    story = Story(tmp_path, precision=precision("fp8", "fp8"), calibration=CALIBRATION)
    with pytest.raises(StepFailed) as failed:
        story.build(bench(gpus=0))
    error = explain_step("checkpoint", failed.value.lines)
    assert error is not None
    assert error.name == "no-gpu"


def test_text_that_nobody_knows_is_not_explained():
    assert explain_step("compile", ["Segmentation fault", ""]) is None


@pytest.mark.parametrize(("fact", "known"), LOAD.items())
def test_a_load_that_fails_says_what_does_not_fit(fact, known):
    row = MESSAGES["load"][fact]
    line = row["match"][0]
    if fact == "wrong_sm":
        line = "incompatible device, expecting compute 8.6 got compute 8.0, please rebuild"
    if fact == "wrong_trt":
        line = (
            "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag "
            "does not match. Note: Current Version: 228, Serialized Engine Version: 237"
        )
    error = explain_load("engine 1234", ["loading", line, "Failed to deserialize cuda engine"])
    assert error is not None
    assert error.name == known


def test_both_sides_of_a_capability_are_named():
    line = "incompatible device, expecting compute 8.6 got compute 8.0, please rebuild"
    error = explain_load("engine", [line])
    assert error is not None
    assert error.message.endswith("this GPU has 8.6, the plan is for 8.0")


def test_a_warning_about_another_board_is_no_failure_and_is_not_overlooked():
    line = MESSAGES["load"]["same_sm_other_sku"]["match"][0]
    assert explain_load("engine", [line]) is None
    assert [warning.name for warning in load_warnings([line])] == ["other-board"]


class TestLeftBehind:
    """Directories of builds that did not end well; each is named for what it is."""

    def leave(self, tmp_path, bench, shape, **changes):
        """What is in the output directory, and whether the tool called it a success."""
        story = Story(tmp_path, **changes)
        with pytest.raises((StepFailed, EngineCIError)) as failed:
            story.build(bench(fail={"trtllm-build": shape}))
        return tmp_path / "outputs" / "compile", failed.value

    def test_config_alone(self, tmp_path, bench):
        directory, failure = self.leave(tmp_path, bench, "leftover-config")
        assert isinstance(failure, StepFailed)
        with pytest.raises(InvalidInput, match="left behind by a build that failed") as refused:
            BACKEND.inspect(directory)
        assert refused.value.name == "engine-incomplete"

    def test_ranks_in_part(self, tmp_path, bench):
        directory, failure = self.leave(
            tmp_path, bench, "partial-ranks", target__parallelism={"tensor": 2, "pipeline": 2}
        )
        assert isinstance(failure, StepFailed)
        with pytest.raises(InvalidInput, match=r"4 rank\(s\).*missing: rank1.engine, rank2.engine"):
            BACKEND.inspect(directory)

    def test_an_empty_plan_with_exit_code_zero(self, tmp_path, bench):
        directory, failure = self.leave(tmp_path, bench, "zero-byte")
        assert isinstance(failure, EngineCIError)
        assert failure.name == "step-output-differs"
        with pytest.raises(InvalidInput, match=r"rank0.engine is empty \(0 bytes\)"):
            BACKEND.inspect(directory)

    def test_nothing_with_exit_code_zero(self, tmp_path, bench):
        directory, failure = self.leave(tmp_path, bench, "no-output")
        assert isinstance(failure, EngineCIError)
        with pytest.raises(InvalidInput, match="empty directory"):
            BACKEND.inspect(directory)

    def test_a_conversion_in_part(self, tmp_path, bench):
        story = Story(tmp_path, target__parallelism={"tensor": 2, "pipeline": 1})
        with pytest.raises(StepFailed):
            story.build(bench(fail={"convert_checkpoint.py": "partial-ranks"}))
