"""`enginectl doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.doctor import Ability


@verb("doctor")
@click.option("--clean", is_flag=True, help="Remove containers that killed runs left behind.")
@click.option(
    "--node-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Describe this machine in a new JSON FILE, for `check --node` and channels.yaml.",
)
def command(shell: Shell, clean: bool, node_file: Path | None) -> Answer:
    """What this machine can build and serve, and why not.

    Three groups: usable; usable but not now, with what to do; not usable, with why.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.doctor import State

    removed = _clean() if clean else None
    if node_file is not None:
        from engine_pipeline.deploy.node import write_node

        write_node(shell.machine, node_file)
    found = _examine(shell)
    groups = {state: [a for a in found if a.state is state] for state in State}
    document = {
        "machine": shell.machine.host_class,
        "removed_containers": (removed or 0) if clean else None,
        "node_file": str(node_file) if node_file else None,
        "groups": {
            str(state): [
                {"name": a.name, "reason": a.reason, "hint": a.hint or None} for a in abilities
            ]
            for state, abilities in groups.items()
        },
    }

    def page(out: Page) -> None:
        out.line(shell.machine.host_class)
        if clean and removed is None:
            out.line("nothing to clean: without the docker package no container was started here")
        elif removed is not None:
            out.line(f"removed {removed} containers of runs that are gone")
        if node_file is not None:
            out.line(f"{node_file} describes it; add tensorrt and tensorrt_llm of what serves here")
        for state, abilities in groups.items():
            out.line()
            out.line(f"{state}:")
            if not abilities:
                out.line("  nothing")
            out.facts((a.name, a.reason + (f"\n→ {a.hint}" if a.hint else "")) for a in abilities)

    return Answer(document=document, page=page)


def _examine(shell: Shell) -> list[Ability]:
    from engine_pipeline import doctor
    from engine_pipeline.build.machine import free_disk_bytes
    from engine_pipeline.cli.wiring import BACKEND_KINDS
    from engine_registry.errors import EngineCIError

    missing, docker, tools = "", "", {}
    try:
        backend = shell.backend("llama-cpp")
        tools = backend.tools() | backend.runtime()
    except EngineCIError as error:
        missing = error.message
    if shell.machine.host.gpus:
        docker = _docker()
    lacks = {"llama-cpp": missing, "docker": docker}
    return [
        *doctor.targets(shell.machine.host, missing),
        *doctor.kinds(shell.machine.host, BACKEND_KINDS, tools, lacks),
        *doctor.places(shell.machine, shell.cache_dir, free_disk_bytes(shell.cache_dir)),
        doctor.same_file_system(shell.cache_dir, _registry_dir(shell.registry_url)),
        doctor.hub(os.environ),
        _policies(shell),
    ]


def _docker() -> str:
    """Why no container can be started here; empty if one can."""
    from engine_pipeline.docker_engine.connect import connect
    from engine_registry.errors import EngineCIError

    try:
        connect().close()
    except EngineCIError as error:
        return error.message
    return ""


def _clean() -> int | None:
    """How many containers were removed; None where nothing can have started any."""
    from engine_pipeline.runners.docker.orphans import clean_orphans
    from engine_registry.errors import Incompatible

    try:
        return len(clean_orphans().removed)
    except Incompatible as error:
        if error.name != "tool-missing":
            raise
        return None


def _registry_dir(url: str) -> Path | None:
    path = url.removeprefix("file://")
    return Path(path) if path.startswith("/") else None


def _policies(shell: Shell) -> Ability:
    from engine_pipeline.doctor import Ability, State
    from engine_registry.errors import EngineCIError

    try:
        gates = ", ".join(shell.policies.gates)
    except EngineCIError as error:
        return Ability(name="policies", state=State.NOT_NOW, reason=error.message, hint=error.hint)
    return Ability(
        name="policies", state=State.USABLE, reason=f"{shell.channels_file}: gates {gates}"
    )
