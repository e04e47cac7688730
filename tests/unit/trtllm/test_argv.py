"""Commands: as reviewed, and accepted by the double of the release they are for."""

from __future__ import annotations

import functools

import pytest

from engine_registry.errors import EngineCIError
from tests.standin.install import facts_of
from tests.standin.toolchain.arguments import parser_for
from tests.unit.trtllm.golden_argv import FOLDER, VERSIONS, cases, golden_files, steps_of

EXAMPLES = "/app/tensorrt_llm/examples/"


@functools.cache
def parser(version, program):
    facts = facts_of(version)
    flags = facts["build_flags"] if program == "trtllm-build" else facts["scripts"][program]
    return parser_for(program, flags)


def toolkit_commands(version):
    """Every command for the toolkit that a plan of this release has: where, and what."""
    for case in cases():
        try:
            steps = steps_of(case, version)
        except EngineCIError:
            continue
        for step in steps:
            if step.name == "checkpoint":
                yield case, step.argv[1].removeprefix(EXAMPLES), step.argv[2:]
            if step.name == "compile":
                yield case, step.argv[0], step.argv[1:]


def test_every_command_is_the_reviewed_one():
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.txt")}
    assert kept == golden_files()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_accepts_every_command_that_is_made_for_it(version):
    commands = list(toolkit_commands(version))
    assert len(commands) > 100
    for _, program, arguments in commands:
        parser(version, program).parse_args(arguments)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_of_the_builder_is_given_or_left_out_on_purpose(version):
    left_out = {
        # Other ways to say what is compiled.
        "--model_config",
        "--build_config",
        "--model_cls_file",
        "--model_cls_name",
        # The modern spelling is given.
        "--paged_kv_cache",
        # Encoder-decoder models, adapters and drafts are not built.
        "--max_encoder_input_len",
        "--lora_dir",
        "--lora_ckpt_source",
        "--lora_target_modules",
        "--max_lora_rank",
        "--speculative_decoding_mode",
        # Bare flags, off when absent.
        "--strip_plan",
        "--fast_build",
        "--weight_sparsity",
        "--weight_streaming",
        "--enable_debug_output",
        "--dry_run",
        "--monitor_memory",
        "--gather_context_logits",
        "--gather_generation_logits",
        "--gather_all_token_logits",
        # For people who debug.
        "--visualize_network",
        # Given with a timing cache, and for labelled boards.
        "--input_timing_cache",
        "--cluster_key",
    }
    known = set(facts_of(version)["build_flags"])
    _, _, arguments = next(
        found for found in toolkit_commands(version) if found[1] == "trtllm-build"
    )
    given = {word for word in arguments if word.startswith("--")}
    assert known - given - left_out == set()
    assert given <= known


def test_the_labelled_board_is_named_only_to_releases_that_label_it():
    def label(version):
        compile_step = next(s for s in steps_of(cases()[2], version) if s.name == "compile")
        argv = compile_step.argv
        return argv[argv.index("--cluster_key") + 1] if "--cluster_key" in argv else None

    assert label("1.1.0") == "H100-SXM"
    assert label("1.2.1") is None
