"""What one build is made of and with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine_pipeline.backends.port import Backend

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from engine_pipeline.build.machine import Machine
    from engine_pipeline.build.step_cache import StepCache
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.trust.signers import Signer
    from engine_registry.record import Actor
    from engine_registry.registry import Registry


class BuildBackend(Backend, Protocol):
    """A backend that also says what it is installed with."""

    def tools(self) -> dict[str, str]:
        """Version of every tool that can change the engine's bytes, as locks state them."""
        ...

    def runtime(self) -> dict[str, str]:
        """Version of what loads the engine, for the record's platform."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Everything one build is made of and with; see `build` for each."""

    lock: BuildLock
    lock_bytes: bytes
    lock_path: Path
    registry: Registry
    runner: Runner
    cache: StepCache
    backend: BuildBackend
    machine: Machine
    progress: Progress
    actor: Actor
    clock: Callable[[], datetime]
    signing_key: Signer | None
