"""The steps from a locked source to a GGUF engine. Pure.

Limits, serving settings and suites are in no step's key: changing them repeats nothing. INT8 and
INT4 of one model share everything up to the F16 file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.fetch_step import fetch_steps
from engine_pipeline.backends.llama_cpp.compare import recipe_for
from engine_pipeline.backends.llama_cpp.inspect import MODEL_FILE
from engine_pipeline.backends.llama_cpp.recipes import PLAIN
from engine_pipeline.backends.llama_cpp.tools import CONVERT_TOOLS, QUANTISE_TOOLS
from engine_pipeline.build.plan import Step, step_key
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.llama_cpp.recipes import Recipe
    from engine_pipeline.spec.lock import BuildLock

_MODULES = "engine_pipeline.backends.llama_cpp"
# Interpreter, numpy, a vocabulary of 10⁵ entries and the piece worked on: steps read and write in
# pieces, so the model's size does not matter. Measured on SmolLM2-135M: below 0.25 GB.
_STEP_RAM_BYTES = 512 << 20
# F16 over what a quantised GGUF source may have: 16 bits over the 4.5 of Q4_0.
_GGUF_GROWTH = 3.6


def steps_for(lock: BuildLock) -> tuple[Step, ...]:
    """Fetch, convert, and quantise unless the recipe is F16 itself."""
    (fetch,) = fetch_steps(lock)  # calibration is refused by `check`
    convert = _convert(lock, fetch)
    recipe = recipe_for(lock.spec.precision)
    if recipe.weights == PLAIN:
        return fetch, convert
    return fetch, convert, _quantise(lock, recipe, convert)


def _convert(lock: BuildLock, fetch: Step) -> Step:
    argv = (
        "{python}",
        "-m",
        f"{_MODULES}.convert",
        "--source",
        "{input:fetch}",
        "--output",
        f"{{output}}/{MODEL_FILE}",
    )
    return Step(
        name="convert",
        title="Convert to F16 GGUF",
        argv=argv,
        inputs=("fetch",),
        outputs=(MODEL_FILE,),
        disk_bytes=_half_bytes(lock),
        ram_bytes=_STEP_RAM_BYTES,
        key=step_key(argv, {"tools": _tools(lock, CONVERT_TOOLS)}, (fetch,)),
    )


def _quantise(lock: BuildLock, recipe: Recipe, convert: Step) -> Step:
    allowed = ",".join(sorted(set(lock.spec.precision.allow_fallback)))
    argv = (
        "{python}",
        "-m",
        f"{_MODULES}.quantise",
        "--recipe",
        recipe.name,
        *(("--allow-fallback", allowed) if allowed else ()),
        "--source",
        f"{{input:convert}}/{MODEL_FILE}",
        "--output",
        f"{{output}}/{MODEL_FILE}",
    )
    return Step(
        name="quantise",
        title=f"Quantise to {recipe.name}",
        argv=argv,
        inputs=("convert",),
        outputs=(MODEL_FILE,),
        disk_bytes=int(_half_bytes(lock) * recipe.bits / 16),
        ram_bytes=_STEP_RAM_BYTES,
        key=step_key(argv, {"tools": _tools(lock, QUANTISE_TOOLS)}, (convert,)),
    )


def _half_bytes(lock: BuildLock) -> int:
    """Estimate of the F16 file; safetensors hold F32, F16 or BF16, so theirs is an upper bound."""
    gguf = sum(item.size_bytes for item in lock.source.files if item.path.endswith(".gguf"))
    return int(gguf * _GGUF_GROWTH) if gguf else lock.source.size_bytes


def _tools(lock: BuildLock, names: tuple[str, ...]) -> dict[str, str]:
    missing = [name for name in names if name not in lock.tools]
    if missing:
        raise InvalidInput(
            f"lock of {lock.spec.name} does not say the versions of: {', '.join(missing)}",
            hint="run `enginectl lock` again",
            reference="lock-incomplete",
        )
    return {name: lock.tools[name] for name in names}
