"""Starts fresh servers for one engine, the same way each time."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.ending import DidNotLoad
from engine_pipeline.gates.server import serving
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.gates.server import Server
    from engine_pipeline.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """An engine and everything that starting a server for it takes.

    Attributes:
        engine_dir: its files.
        runtime_config: what the server is started with; see `Backend.serve`.
        runtime: versions of what loads it, as it was recorded.
        log_path: where a server's output goes; each start overwrites it.
        timeout_s: longest wait until a server is ready.
        place: turns the backend's command into the one that is started on this machine.
    """

    backend: Backend
    engine_dir: Path
    runtime_config: dict[str, Any]
    runtime: dict[str, str]
    log_path: Path
    progress: Progress
    timeout_s: float
    place: Callable[[ServeCommand], AbstractContextManager[ServeCommand]] = nullcontext

    @property
    def is_ours(self) -> bool:
        """Whether servers are descendants of this process; in a container they are not."""
        return self.place is nullcontext

    def command(self) -> ServeCommand:
        """How a server is started.

        Raises:
            DidNotLoad: the files are no engine of this kind.
            InvalidInput: the runtime configuration is wrong.
        """
        try:
            facts = self.backend.inspect(self.engine_dir)
        except (InvalidInput, NotFound) as error:
            raise DidNotLoad(error.message, hint=error.hint, reference=error.name) from error
        # The runtime that the engine was recorded with, not whichever is supported today.
        recorded = facts.model_copy(update={"runtime": facts.runtime | self.runtime})
        return self.backend.serve(recorded, self.runtime_config)

    @contextmanager
    def serve(self) -> Iterator[Server]:
        """A fresh server, ready, ended with the block; raises as `command` and `serving`."""
        with (
            self.place(self.command()) as placed,
            serving(
                placed,
                self.engine_dir,
                progress=self.progress,
                log_path=self.log_path,
                timeout_s=self.timeout_s,
            ) as server,
        ):
            yield server
