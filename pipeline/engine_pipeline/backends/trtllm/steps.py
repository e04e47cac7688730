"""The steps from a locked source to a TensorRT-LLM engine with its tokenizer. Pure.

    fetch          the model, at its commit                                        network
    calibration    the data that scales are taken from, where the recipe needs any   network
    timing-cache   a checked copy of a given one
    checkpoint     convert_checkpoint.py or quantize.py                                GPU
    compile        trtllm-build                                                       GPU
    refit          trtllm-refit, only with `strip-plan`                               GPU
    engine         plans, config.json and the tokenizer, in one directory

With `strip-plan` the plan is compiled without weights, and its key covers the model's structure in
place of its weights: a fine-tuned copy of the same model reuses the plan and pays for the refit.
Upstream promises a refit for the weights that the plan was built from; for others the gates decide,
and the refitted engine is an engine of its own digest.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.fetch_step import fetch_steps
from engine_pipeline.backends.trtllm.builder import (
    CHECKPOINT,
    COMPILE,
    TIMING_CACHE,
    TIMING_CACHE_FILE,
    TOKENIZER_DIR,
    build_argv,
    checkpoint_files,
    engine_files,
    refit_argv,
)
from engine_pipeline.backends.trtllm.convert import checkpoint_argv
from engine_pipeline.backends.trtllm.families import choose_family
from engine_pipeline.backends.trtllm.model_fit import check_model
from engine_pipeline.backends.trtllm.recipes import uses_quantize
from engine_pipeline.backends.trtllm.settings import settings_of
from engine_pipeline.backends.trtllm.tools import ASSEMBLE, TOOLS
from engine_pipeline.build.plan import Step, step_key
from engine_pipeline.capacity.estimate import sizing_of_spec
from engine_pipeline.capacity.parameters import rank_bytes
from engine_pipeline.capacity.verdict import refuse_unloadable
from engine_pipeline.spec.tokenizer import TOKENIZER_FILES
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.families import Family
    from engine_pipeline.backends.trtllm.settings import Settings
    from engine_pipeline.spec.lock import BuildLock

_MODULES = "engine_pipeline.backends.trtllm"
# Read beside the tokenizer's own files: which class it is, and which tokens end an answer.
_TOKENIZER_CONFIG = ("config.json", "generation_config.json")
_TOOLKIT_ENV = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
# Everything was fetched before; a script that still asks the hub shall fail at once.
_OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_OWN_RAM_BYTES = 512 << 20
# NVIDIA's own run command for these images; NCCL and MPI talk through it between ranks.
_SHM_BYTES = 16 << 30
# Host memory of conversion and compilation over the bytes of the checkpoint: 10 to 176 GB for 7B to
# 35B models in the logs of examples/{chatglm,falcon,commandr}, "2 to 3 times per rank".
_RAM_MULTIPLE = 3
# A cache of measured tactics is some megabytes.
_TIMING_CACHE_BYTES = 64 << 20
_CONFIG_BYTES = 1 << 20


def steps_for(lock: BuildLock) -> tuple[Step, ...]:
    """Every step of this lock, in order; the last one's output is the engine.

    Raises:
        InvalidInput: `family-unknown`, `family-differs`, `structure-unknown`.
        Incompatible: the model does not go with the spec, or the engine would not fit the board.
    """
    spec = lock.spec
    settings = settings_of(spec)
    family = choose_family(settings.options.family, lock.shape, spec.name)
    check_model(spec, settings, family, lock.shape)
    refuse_unloadable(spec, lock.shape)
    fetched = fetch_steps(lock)
    checkpoint = _checkpoint(lock, settings, family, fetched)
    steps = [*fetched, checkpoint]
    seeds = []
    if settings.options.timing_cache is not None:
        seeds.append(_timing_cache(settings))
        steps.append(seeds[0])
    compiled = _compile(lock, settings, checkpoint, tuple(seeds))
    steps.append(compiled)
    plans = compiled
    if settings.options.strip_plan:
        plans = _refit(lock, compiled, checkpoint)
        steps.append(plans)
    return (*steps, _engine(lock, fetched[0], plans))


def tokenizer_files(lock: BuildLock) -> tuple[str, ...]:
    """Files of the source that an engine needs to be served, by their names in the source."""
    wanted = {*TOKENIZER_FILES, *_TOKENIZER_CONFIG}
    return tuple(
        file.path
        for file in lock.source.files
        if file.path in wanted and file.path == PurePosixPath(file.path).name
    )


def _timing_cache(settings: Settings) -> Step:
    given = settings.options.timing_cache
    assert given is not None
    argv = (
        "{python}",
        "-m",
        f"{_MODULES}.timing_cache",
        "--lock",
        "{lock}",
        "--path",
        given.path,
        "--digest",
        str(given.digest),
        "--output",
        f"{{output}}/{TIMING_CACHE_FILE}",
    )
    return Step(
        name=TIMING_CACHE,
        title=f"Check the timing cache {given.path}",
        argv=argv,
        outputs=(TIMING_CACHE_FILE,),
        disk_bytes=_TIMING_CACHE_BYTES,
        ram_bytes=_OWN_RAM_BYTES,
        key=step_key((), {"digest": str(given.digest)}, ()),
    )


def _checkpoint(
    lock: BuildLock, settings: Settings, family: Family, fetched: tuple[Step, ...]
) -> Step:
    argv = checkpoint_argv(lock, settings, family)
    ranks = lock.spec.target.parallelism.world_size
    quantises = uses_quantize(settings.recipe, settings.cache)
    return Step(
        name=CHECKPOINT,
        title=f"Quantise to {settings.recipe.name}"
        if quantises
        else f"Convert to {settings.dtype}",
        argv=argv,
        inputs=tuple(step.name for step in fetched),
        env=_TOOLKIT_ENV,
        variables=_OFFLINE,
        image=_image(lock),
        outputs=checkpoint_files(ranks),
        disk_bytes=_weights_bytes(lock) * ranks + _CONFIG_BYTES,
        ram_bytes=_RAM_MULTIPLE * max(lock.source.size_bytes // ranks, _weights_bytes(lock)),
        # Calibration runs the whole model; casting does not, and imports a library that wants one.
        gpus=ranks if quantises else 1,
        shm_bytes=_SHM_BYTES,
        key=step_key(argv, _toolkit(lock), fetched),
    )


def _compile(
    lock: BuildLock, settings: Settings, checkpoint: Step, seeds: tuple[Step, ...]
) -> Step:
    spec = lock.spec
    argv = build_argv(spec, settings)
    ranks = spec.target.parallelism.world_size
    plans = engine_files(ranks, managed_weights=settings.options.fast_build)
    inputs = (checkpoint, *seeds)
    # The plan is measured on this board: two SKUs of one capability never share one.
    parts = _toolkit(lock) | {"sku": spec.target.sku}
    if settings.options.strip_plan:
        parts |= {"checkpoint": list(checkpoint.argv), "structure": _structure(lock)}
        key = step_key(argv, parts, seeds)
    else:
        key = step_key(argv, parts, inputs)
    return Step(
        name=COMPILE,
        title=f"Compile for {ranks} × {spec.target.sku}"
        + (", without weights" if settings.options.strip_plan else ""),
        argv=argv,
        inputs=tuple(step.name for step in inputs),
        env=_TOOLKIT_ENV,
        variables=_OFFLINE,
        image=_image(lock),
        outputs=(*plans, TIMING_CACHE_FILE),
        disk_bytes=_weights_bytes(lock) * ranks + _TIMING_CACHE_BYTES,
        ram_bytes=_RAM_MULTIPLE * _weights_bytes(lock) * ranks,
        gpus=ranks,
        shm_bytes=_SHM_BYTES,
        keep=(TIMING_CACHE_FILE,),
        key=key,
    )


def _refit(lock: BuildLock, compiled: Step, checkpoint: Step) -> Step:
    argv = refit_argv()
    ranks = lock.spec.target.parallelism.world_size
    return Step(
        name="refit",
        title="Put the weights into the plan",
        argv=argv,
        inputs=(compiled.name, checkpoint.name),
        env=_TOOLKIT_ENV,
        variables=_OFFLINE,
        image=_image(lock),
        outputs=engine_files(ranks, managed_weights=False),
        disk_bytes=_weights_bytes(lock) * ranks + _CONFIG_BYTES,
        ram_bytes=_RAM_MULTIPLE * _weights_bytes(lock),
        # One rank after the other, each on a GPU that can load its plan.
        gpus=1,
        shm_bytes=_SHM_BYTES,
        key=step_key(argv, _toolkit(lock) | {"sku": lock.spec.target.sku}, (compiled, checkpoint)),
    )


def _engine(lock: BuildLock, fetched: Step, plans: Step) -> Step:
    files = [name for name in plans.outputs if name not in plans.keep]
    beside = tokenizer_files(lock)
    argv = (
        "{python}",
        "-m",
        f"{_MODULES}.assemble",
        "--plans",
        f"{{input:{plans.name}}}",
        "--source",
        f"{{input:{fetched.name}}}",
        "--output",
        "{output}",
        "--files",
        *files,
        "--tokenizer",
        *beside,
    )
    return Step(
        name="engine",
        title="Put plans and tokenizer together",
        argv=argv,
        inputs=(fetched.name, plans.name),
        outputs=(*files, *(f"{TOKENIZER_DIR}/{name}" for name in beside)),
        disk_bytes=plans.disk_bytes,
        ram_bytes=_OWN_RAM_BYTES,
        key=step_key(argv, {"tools": {ASSEMBLE: TOOLS[ASSEMBLE]}}, (fetched, plans)),
    )


def _structure(lock: BuildLock) -> str:
    if lock.shape is None:
        raise InvalidInput(
            f"{lock.spec.name}: strip-plan reuses plans between models of one structure, the lock "
            "says nothing of this one's",
            hint="run `enginectl lock` again on a source with config.json, or remove strip-plan",
            reference="structure-unknown",
        )
    return str(lock.shape.structure)


def _image(lock: BuildLock) -> str | None:
    """The image by digest, without the tag that it had."""
    if lock.image is None:
        return None
    name = lock.image.reference.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}@{lock.image.digest}"


def _toolkit(lock: BuildLock) -> dict[str, Any]:
    return {
        "tensorrt_llm": lock.spec.backend.version,
        "image": str(lock.image.digest) if lock.image else None,
    }


def _weights_bytes(lock: BuildLock) -> int:
    """Of one rank, from the model's shape; without one, what the source weighs is the bound."""
    if lock.shape is None:
        return lock.source.size_bytes // lock.spec.target.parallelism.world_size
    sizing = sizing_of_spec(lock.spec, lock.shape)
    return rank_bytes(lock.shape, sizing.weight_bits, sizing.tensor, sizing.pipeline)
