"""Command lines of `trtllm-build` and `trtllm-refit`, and the files they leave. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.build_flags import cluster_key

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.model import BuildSpec

CHECKPOINT, COMPILE, TIMING_CACHE = "checkpoint", "compile", "timing-cache"
CONFIG_FILE = "config.json"
# Beside the plans, in a folder: its own config.json is the model's.
TOKENIZER_DIR = "tokenizer"
# The builder's own default name. It is written by rank 0, into the working directory unless told
# otherwise, so it is told.
TIMING_CACHE_FILE = "model.cache"


def build_argv(spec: BuildSpec, settings: Settings) -> tuple[str, ...]:
    """The command that compiles the checkpoint: every size, switch and plugin of the release."""
    argv = [
        "trtllm-build",
        "--checkpoint_dir",
        f"{{input:{CHECKPOINT}}}",
        "--output_dir",
        "{output}",
        "--workers",
        str(spec.target.parallelism.world_size),
        "--log_level",
        "info",
        "--output_timing_cache",
        f"{{output}}/{TIMING_CACHE_FILE}",
    ]
    if settings.options.timing_cache is not None:
        argv += ["--input_timing_cache", f"{{input:{TIMING_CACHE}}}/{TIMING_CACHE_FILE}"]
    for name, value in {**settings.sizes, **settings.flags}.items():
        argv += [f"--{name}", str(value)]
    if (label := cluster_key(spec.backend.version, spec.target.sku)) is not None:
        argv += ["--cluster_key", label]
    if settings.options.strip_plan:
        argv.append("--strip_plan")
    if settings.options.fast_build:
        argv.append("--fast_build")
    return tuple(argv)


def refit_argv() -> tuple[str, ...]:
    """The command that puts a checkpoint's weights into a stripped plan."""
    return (
        "trtllm-refit",
        "--engine_dir",
        f"{{input:{COMPILE}}}",
        "--checkpoint_dir",
        f"{{input:{CHECKPOINT}}}",
        "--output_dir",
        "{output}",
        "--log_level",
        "info",
    )


def checkpoint_files(ranks: int) -> tuple[str, ...]:
    """What conversion leaves: one file of weights per rank."""
    return (CONFIG_FILE, *(f"rank{rank}.safetensors" for rank in range(ranks)))


def engine_files(ranks: int, *, managed_weights: bool) -> tuple[str, ...]:
    """What an engine directory holds: one plan per rank and, where told so, its weights beside."""
    plans = tuple(f"rank{rank}.engine" for rank in range(ranks))
    weights = tuple(f"rank{rank}_managed_weights.safetensors" for rank in range(ranks))
    return (CONFIG_FILE, *plans, *(weights if managed_weights else ()))
