"""`serve.json` of a Triton target: what starts a server that serves this deployment. Pure.

A server that is restarted, by whoever watches over it, comes back with what `current` names. One
rank runs inside the server. More are worker processes that the backend starts by itself in
orchestrator mode, as many as the engine's config.json says; the server itself stays one process.
Source: scripts/launch_triton_server.py of the tensorrtllm backend, option --multi-model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_registry.record import Release

_ORCHESTRATOR = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}


def launch_document(
    release: Release, *, repository: str, ranks: int, shm_bytes: int
) -> dict[str, object]:
    """What starts the server.

    Args:
        release: what it serves.
        repository: the model repository as the server sees it.
        ranks: of the engine, counted in it.
        shm_bytes: shared memory a container needs.
    """
    server = [
        "tritonserver",
        "--model-control-mode=explicit",
        f"--model-repository={repository}",
        "--load-model=*",
    ]
    spawns = ranks > 1 and release.content.kind == "trtllm-engine"
    if spawns:
        # The workers need the memory that the server would otherwise set aside on each GPU.
        server += ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
        server += [f"--cuda-memory-pool-byte-size={rank}:0" for rank in range(ranks)]
    return {
        "schema_version": 1,
        "release": release.name,
        "serving_image": release.content.serving_image,
        "runtime_config": release.content.runtime_config,
        "argv": ["mpirun", "--allow-run-as-root", "-n", "1", *server] if spawns else server,
        "env": _ORCHESTRATOR if spawns else {},
        "gpus": ranks,
        "shm_bytes": shm_bytes,
        "health_path": "/v2/health/ready",
    }
