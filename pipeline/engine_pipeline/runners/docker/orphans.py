"""Containers whose keeper is gone: found by their labels, and removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.docker_engine.connect import asking, connect
from engine_pipeline.runners.docker.owner import OURS, Owner, owner_of

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did.

    Attributes:
        removed: names of containers that nobody kept any more.
        unknown: names of those whose keeper is on another machine or in another container; they
            stay, and `docker rm --force NAME` is for whoever knows better.
    """

    removed: tuple[str, ...]
    unknown: tuple[str, ...]


def clean_orphans(client: DockerClient | None = None) -> Swept:
    """Remove every container of this project whose keeper has ended.

    Those of running builds and gates stay; running it twice has no second effect.

    Raises:
        Incompatible, Unavailable: no client, or no daemon to ask.
    """
    client = client or connect()
    removed, unknown = [], []
    with asking("containers of earlier runs"):
        for found in client.api.containers(all=True, filters={"label": OURS}):
            name = found["Names"][0].lstrip("/") if found["Names"] else found["Id"]
            owner = owner_of(found["Labels"])
            if owner is Owner.UNKNOWN:
                unknown.append(name)
            elif owner is Owner.DEAD:
                remove(client, found["Id"])
                removed.append(name)
    return Swept(removed=tuple(removed), unknown=tuple(unknown))


def remove(client: DockerClient, name: str) -> None:
    """Kill and remove a container with its anonymous volumes; no-op if it is gone or going."""
    import docker

    with asking(f"container {name}"), suppress(docker.errors.NotFound):
        try:
            client.api.remove_container(name, force=True, v=True)
        except docker.errors.APIError as error:
            # 409: somebody else is removing it at this moment.
            if error.status_code != 409:
                raise
