"""A connection to the Docker Engine that this user's `docker` command would use."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine_pipeline.docker_engine.failures import explain
from engine_registry.errors import EngineCIError, Incompatible, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient

# Starting a container on a host with eight GPUs and no persistence daemon takes half a minute.
_TIMEOUT_S = 300
# What decides which daemon is asked and how, beside HOME and PATH.
ENVIRONMENT = (
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
)
_PERMISSION = ("Permission denied", "PermissionError")


def connect() -> DockerClient:
    """A client of the daemon that DOCKER_HOST or the current Docker context names.

    Raises:
        Incompatible: `tool-missing`: the `docker` package is not installed.
        Unavailable: `docker-not-running` or `docker-not-permitted`.
    """
    try:
        import docker
    except ImportError as error:
        raise Incompatible(
            "the docker package is not installed, runs in containers need it",
            hint="pip install 'engine-ci[docker]'",
            reference="tool-missing",
        ) from error
    try:
        return docker.from_env(timeout=_TIMEOUT_S)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise _no_daemon(str(error)) from error


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn whatever the client raises in the block into errors of this project.

    Args:
        what: the thing wanted, as messages name it.
    """
    import docker
    import requests
    import urllib3

    try:
        yield
    except EngineCIError:
        raise
    except docker.errors.APIError as error:
        raise explain(what, str(error.explanation or error)) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise daemon_lost(what) from error


def daemon_lost(what: str) -> Unavailable:
    """The error of an act during which the daemon stopped answering."""
    return Unavailable(
        f"{what}: the Docker daemon stopped answering",
        hint="start it again (`systemctl start docker`), then run the same command: finished steps "
        "are kept",
        reference="docker-lost",
    )


def _no_daemon(said: str) -> Unavailable:
    if any(word in said for word in _PERMISSION):
        return Unavailable(
            "this user may not talk to the Docker daemon",
            hint="add the user to the group `docker` and log in again, or set up rootless Docker",
            reference="docker-not-permitted",
        )
    return Unavailable(
        f"no Docker daemon answers: {' '.join(said.split())[:200]}",
        hint="start it (`systemctl start docker`), or name it in DOCKER_HOST",
        reference="docker-not-running",
    )
