"""A build plan: ordered steps as pure values. `enginectl plan` prints it; runners execute it.

Steps name their paths by placeholders, so the same plan runs on this machine or in a container:

    {python}      the interpreter that runs engine-ci's own steps
    {lock}        the lock file
    {input:NAME}  output directory of the earlier step NAME, read-only
    {output}      this step's empty output directory

A step's key covers its command, its tools, its image and its inputs' keys: equal keys mean that
the stored output can be used again.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, canonical_json
from engine_registry.errors import EngineCIError
from engine_registry.refs import Slug

_PLACEHOLDER = re.compile(r"\{(python|lock|output|input:[a-z0-9._-]+)\}")


class Step(Value):
    """One command of a plan.

    Attributes:
        argv: the command as a list, with placeholders; never given to a shell.
        inputs: names of earlier steps whose output this one reads.
        env: names of environment variables that are passed on; values never enter the plan.
        image: digest-pinned image for runners that use containers.
        outputs: files that must exist, non-empty, in the output directory afterwards; no others.
        network: whether the step may reach the network; only fetching does.
        disk_bytes: expected size of the output.
        ram_bytes: expected peak of host memory.
        variables: environment variables with their values, for settings that are no secret.
        gpus: how many GPUs of the target SKU the command needs.
        shm_bytes: shared memory it needs; containers get too little by default.
        keep: outputs that are kept beside the engine and are no part of it, e.g. a timing cache.
        key: see the module's docstring.
    """

    name: Slug
    title: Annotated[str, Field(min_length=1)]
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    inputs: tuple[Slug, ...] = ()
    env: tuple[str, ...] = ()
    image: str | None = None
    outputs: Annotated[tuple[str, ...], Field(min_length=1)]
    network: bool = False
    disk_bytes: Annotated[int, Field(ge=0)] = 0
    ram_bytes: Annotated[int, Field(ge=0)] = 0
    variables: dict[str, str] = {}
    gpus: Annotated[int, Field(ge=0)] = 0
    shm_bytes: Annotated[int, Field(ge=0)] = 0
    keep: tuple[str, ...] = ()
    key: Digest


class BuildPlan(Document):
    """Everything a build will do, before it does anything.

    Attributes:
        host: what the keys say of the building machine; empty if nothing of it, or none is known.
    """

    spec: str
    build_key: Digest
    host: dict[str, str] = {}
    lock: Digest
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]


def step_key(argv: tuple[str, ...], parts: dict[str, Any], inputs: tuple[Step, ...]) -> Digest:
    """The key of a step: its command, whatever else decides its output, and its inputs' keys.

    Args:
        argv: the command with placeholders.
        parts: plain JSON values, e.g. tool versions, image digest, the files to fetch.
        inputs: the earlier steps it reads.
    """
    return Digest.of(
        canonical_json(
            {"argv": list(argv), "parts": parts, "inputs": {s.name: str(s.key) for s in inputs}}
        )
    )


def fill(argv: tuple[str, ...], values: dict[str, str]) -> list[str]:
    """`argv` with its placeholders replaced, each argument staying one argument.

    Raises:
        EngineCIError: a placeholder without a value: a bug of the plan.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise EngineCIError(
                f"plan names {{{name}}}, the runner has no such path",
                hint="report this as a bug, with `enginectl plan --output json`",
            )
        return values[name]

    return [_PLACEHOLDER.sub(value, part) for part in argv]
