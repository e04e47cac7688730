"""The TensorRT-LLM engine kind behind the backend port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.trtllm.check import check_spec
from engine_pipeline.backends.trtllm.compare import differences
from engine_pipeline.backends.trtllm.failures import ToolkitWords
from engine_pipeline.backends.trtllm.inspect import inspect_engine
from engine_pipeline.backends.trtllm.serve import serve_command
from engine_pipeline.backends.trtllm.steps import steps_for
from engine_pipeline.backends.trtllm.tools import TOOLS
from engine_pipeline.spec.model import EngineKind

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.port import EngineFacts, Mismatch, ServeCommand, Words
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec


class TrtllmBackend:
    """TensorRT plans for NVIDIA GPUs. Each method's contract is `Backend`'s."""

    kind = EngineKind.TRTLLM_ENGINE
    words: Words = ToolkitWords()

    def check(self, spec: BuildSpec) -> None:
        """Refuse what cannot be built, naming what can."""
        check_spec(spec)

    def plan(self, lock: BuildLock) -> tuple[Step, ...]:
        """Fetch, convert or quantise, compile, refit if stripped, put together."""
        return steps_for(lock)

    def inspect(self, engine_dir: Path) -> EngineFacts:
        """What config.json and the plans' headers say."""
        return inspect_engine(engine_dir)

    def compare(self, lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
        """Where the engine is not what the lock asked for."""
        return differences(lock, facts)

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        """`trtllm-serve` of the release that built the engine."""
        return serve_command(facts, runtime_config)

    def tools(self) -> dict[str, str]:
        """This project's own steps; the toolkit is pinned by image digest and backend.version."""
        return dict(TOOLS)

    def runtime(self) -> dict[str, str]:
        """Nothing on this machine: what loads an engine is in its image, named by its files."""
        return {}
