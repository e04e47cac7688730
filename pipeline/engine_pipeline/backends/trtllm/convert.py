"""Command lines of `convert_checkpoint.py` and `quantize.py`. Pure.

Neither script has a revision flag, so both get the fetched snapshot as a local path. Every argument
that changes the checkpoint is given, whether or not it is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.fetch_step import CALIBRATION, FETCH
from engine_pipeline.backends.trtllm.families import convert_script, quantize_script
from engine_pipeline.backends.trtllm.recipes import (
    PLAIN,
    awq_samples,
    needs_calibration,
    uses_quantize,
)

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.families import Family
    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.lock import BuildLock

# The toolkit's own interpreter, on the PATH of its image; not the one that runs engine-ci.
_PYTHON = "python3"
# quantize.py's default; tokenizers are made for at least this length.
_TOKENIZER_TOKENS = 2048


def checkpoint_argv(lock: BuildLock, settings: Settings, family: Family) -> tuple[str, ...]:
    """The command that makes a TensorRT-LLM checkpoint from the fetched source."""
    if uses_quantize(settings.recipe, settings.cache):
        return _quantize(lock, settings)
    return _convert(lock, settings, family)


def _convert(lock: BuildLock, settings: Settings, family: Family) -> tuple[str, ...]:
    parallelism, style = lock.spec.target.parallelism, family.style
    script = convert_script(family, lock.spec.backend.version)
    argv = [
        _PYTHON,
        f"{settings.options.examples_dir}/{script}",
        *style.fixed,
        style.model,
        f"{{input:{FETCH}}}",
        style.output,
        "{output}",
        style.dtype,
        settings.dtype,
        style.tensor,
        str(parallelism.tensor),
    ]
    if style.pipeline is not None:
        argv += [style.pipeline, str(parallelism.pipeline)]
    if family.experts and style.moe_tensor is not None and style.moe_expert is not None:
        expert = settings.options.moe_expert
        argv += [style.moe_tensor, str(parallelism.tensor // expert), style.moe_expert, str(expert)]
    scheme = settings.recipe.convert
    if scheme is not None and scheme != PLAIN:
        argv += [*style.weight_only, scheme]
    if settings.recipe.quantised_source is not None:
        argv += [*(style.gptq or ()), str(settings.options.group_size)]
        argv += _quantised_file(lock, family)
    return tuple(argv)


def _quantised_file(lock: BuildLock, family: Family) -> list[str]:
    """The one file of quantised weights; of several, the script reads the source's own index."""
    weights = [file.path for file in lock.source.files if file.path.endswith(".safetensors")]
    if family.gptq_path is None or len(weights) != 1:
        return []
    return [family.gptq_path, f"{{input:{FETCH}}}/{weights[0]}"]


def _quantize(lock: BuildLock, settings: Settings) -> tuple[str, ...]:
    parallelism, recipe = lock.spec.target.parallelism, settings.recipe
    argv = [
        _PYTHON,
        f"{settings.options.examples_dir}/{quantize_script()}",
        "--model_dir",
        f"{{input:{FETCH}}}",
        "--output_dir",
        "{output}",
        "--device",
        "cuda",
        "--dtype",
        settings.dtype,
        "--qformat",
        str(recipe.qformat),
        "--tp_size",
        str(parallelism.tensor),
        "--pp_size",
        str(parallelism.pipeline),
        "--cp_size",
        "1",
        "--tokenizer_max_seq_length",
        str(_TOKENIZER_TOKENS),
        "--seed",
        str(settings.options.calibration_seed),
    ]
    if settings.cache.flag is not None:
        argv += ["--kv_cache_dtype", settings.cache.flag]
    if recipe.awq:
        argv += ["--awq_block_size", str(settings.options.group_size)]
    calibration = lock.spec.calibration
    if needs_calibration(recipe, settings.cache) and calibration is not None:
        samples = calibration.samples
        argv += [
            "--calib_dataset",
            f"{{input:{CALIBRATION}}}",
            "--calib_size",
            # AWQ stops there and only logs it; the command says what happens.
            str(min(samples, awq_samples()) if recipe.awq else samples),
            "--calib_max_seq_length",
            str(calibration.max_tokens),
            "--batch_size",
            str(settings.options.calibration_batch_size),
        ]
    return tuple(argv)
