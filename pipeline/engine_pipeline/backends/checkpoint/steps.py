"""The steps from a locked checkpoint to what is promoted: fetch, then put together. Pure.

Nothing is compiled: kernels are chosen and graphs captured when the server starts, and no file
keeps them. What can be pinned is the checkpoint, the serving settings and the image, and all three
are in the engine's digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.checkpoint.check import check_model
from engine_pipeline.backends.checkpoint.runtime_file import RUNTIME_FILE, runtime_of
from engine_pipeline.backends.checkpoint.serving_yaml import SERVING_FILE, serving_config
from engine_pipeline.backends.fetch_step import FETCH, fetch_steps
from engine_pipeline.build.plan import Step, step_key
from engine_pipeline.capacity.verdict import refuse_unloadable
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.spec.lock import BuildLock

ASSEMBLE = "engine-ci/checkpoint-assemble"
# Raised with every change that gives other files from the same inputs.
TOOLS = {ASSEMBLE: "1"}
_RAM_BYTES = 512 << 20


def steps_for(lock: BuildLock) -> tuple[Step, ...]:
    """Fetch and assemble.

    Raises:
        Incompatible: the checkpoint does not go with the spec, or would not fit the board.
        InvalidInput: the source is no checkpoint.
    """
    check_model(lock)
    refuse_unloadable(lock.spec, lock.shape)
    files = tuple(file.path for file in lock.source.files)
    if clash := sorted({SERVING_FILE, RUNTIME_FILE} & set(files)):
        raise InvalidInput(
            f"{lock.spec.name}: the source has files of its own called {', '.join(clash)}",
            hint="leave them out with model.files",
            reference="source-file-clashes",
        )
    (fetched,) = fetch_steps(lock)
    argv = (
        "{python}",
        "-m",
        "engine_pipeline.backends.checkpoint.assemble",
        "--lock",
        "{lock}",
        "--source",
        f"{{input:{FETCH}}}",
        "--output",
        "{output}",
    )
    parts = {
        "tools": TOOLS,
        "serving": serving_config(lock.spec),
        "runtime": runtime_of(lock).model_dump(mode="json"),
        "precision": lock.spec.precision.model_dump(mode="json"),
    }
    engine = Step(
        name="engine",
        title=f"Check the checkpoint and add {SERVING_FILE}",
        argv=argv,
        inputs=(FETCH,),
        outputs=(*files, SERVING_FILE, RUNTIME_FILE),
        disk_bytes=lock.source.size_bytes,
        ram_bytes=_RAM_BYTES,
        key=step_key(argv, parts, (fetched,)),
    )
    return fetched, engine
