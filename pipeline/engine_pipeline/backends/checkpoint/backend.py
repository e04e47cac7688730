"""The TensorRT-LLM checkpoint kind behind the backend port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.checkpoint.check import check_spec
from engine_pipeline.backends.checkpoint.compare import differences
from engine_pipeline.backends.checkpoint.inspect import inspect_checkpoint
from engine_pipeline.backends.checkpoint.serve import serve_command
from engine_pipeline.backends.checkpoint.steps import TOOLS, steps_for
from engine_pipeline.backends.checkpoint.words import ServerWords
from engine_pipeline.spec.model import EngineKind

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.port import EngineFacts, Mismatch, ServeCommand, Words
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec


class CheckpointBackend:
    """Pre-quantised checkpoints for NVIDIA GPUs. Each method's contract is `Backend`'s."""

    kind = EngineKind.TRTLLM_CHECKPOINT
    words: Words = ServerWords()

    def check(self, spec: BuildSpec) -> None:
        """Refuse what cannot be served, naming what can."""
        check_spec(spec)

    def plan(self, lock: BuildLock) -> tuple[Step, ...]:
        """Fetch and put together."""
        return steps_for(lock)

    def inspect(self, engine_dir: Path) -> EngineFacts:
        """What config.json, hf_quant_config.json and the shards' headers say."""
        return inspect_checkpoint(engine_dir)

    def compare(self, lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
        """Where the checkpoint is not what the lock asked for."""
        return differences(lock, facts)

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        """`trtllm-serve` of the release that the checkpoint names."""
        return serve_command(facts, runtime_config)

    def tools(self) -> dict[str, str]:
        """This project's own steps; the server is pinned by image digest and backend.version."""
        return dict(TOOLS)

    def runtime(self) -> dict[str, str]:
        """Nothing on this machine: what serves is in its image, named by `runtime.json`."""
        return {}
