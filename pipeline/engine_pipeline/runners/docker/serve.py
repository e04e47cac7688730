"""Servers in their image, for gates: the command that holds such a container in the foreground."""

from __future__ import annotations

import secrets
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.docker_engine.connect import connect
from engine_pipeline.docker_engine.images import have_image
from engine_pipeline.runners.docker.orphans import remove
from engine_pipeline.runners.docker.runner import PYTHON
from engine_pipeline.runners.docker.work import ENGINE, SCRATCH, ContainerWork, Mount
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from engine_pipeline.backends.port import ServeCommand
    from engine_pipeline.progress import Progress

_KEEPER = "engine_pipeline.runners.docker.keeper"
# Less than `gates.server` waits before it kills: the keeper must still remove the container.
_STOP_S = 6.0
# Inside, a server listens on the container's own address; outside only loopback leads there.
_EVERY_ADDRESS = "0.0.0.0"


class ContainerServing:
    """Puts a server into a container.

    The engine is mounted read-only at /ci/engine, the port is published on 127.0.0.1, and only the
    leased GPUs are there.

    Args:
        image: by digest.
        workdir: where the server's home and temporary files go; removed with the container.
        progress: told of the image's download, which counts for no time limit of the gate.
        lease: UUIDs of so many GPUs, for as long as the block lasts.
    """

    def __init__(
        self,
        *,
        image: str,
        workdir: Path,
        progress: Progress,
        lease: Callable[[int], AbstractContextManager[tuple[str, ...]]],
    ) -> None:
        self._image = image
        self._workdir = workdir
        self._progress = progress
        self._lease = lease

    @contextmanager
    def __call__(self, command: ServeCommand) -> Iterator[ServeCommand]:
        """The command to start on this machine; the container is gone when the block ends.

        Raises:
            EngineCIError: the image cannot be had, or no GPU is free.
        """
        client = connect()
        have_image(client, self._image, self._progress)
        name = f"engine-ci-serve-{secrets.token_hex(6)}"
        self._workdir.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            gpus = stack.enter_context(self._lease(command.gpus)) if command.gpus else ()
            scratch = stack.enter_context(
                tempfile.TemporaryDirectory(dir=self._workdir, ignore_cleanup_errors=True)
            )
            work = _work(command, self._image, name, Path(scratch), gpus)
            try:
                yield command.model_copy(
                    update={
                        "argv": (
                            "{python}",
                            "-m",
                            _KEEPER,
                            work.model_dump_json(),
                            "--engine",
                            "{engine}",
                            "--port",
                            "{port}",
                        ),
                        "env": {},
                    }
                )
            finally:
                with suppress(EngineCIError):
                    remove(client, name)


def _work(
    command: ServeCommand, image: str, name: str, scratch: Path, gpus: tuple[str, ...]
) -> ContainerWork:
    home, temporary = scratch / "work", scratch / "tmp"
    for directory in (home, temporary):
        directory.mkdir()
    inside = {"{python}": PYTHON, "{engine}": ENGINE, "{host}": _EVERY_ADDRESS}
    argv = []
    for part in command.argv:
        filled = part
        for placeholder, value in inside.items():
            filled = filled.replace(placeholder, value)
        argv.append(filled)
    return ContainerWork(
        name=name,
        what="server",
        image=image,
        argv=tuple(argv),
        mounts=(
            Mount(source=str(home), target=SCRATCH, writable=True),
            Mount(source=str(temporary), target="/tmp", writable=True),
        ),
        variables=command.env,
        gpus=gpus,
        shm_bytes=command.shm_bytes,
        stop_s=_STOP_S,
    )
