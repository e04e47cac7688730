"""The llama.cpp engine kind behind the backend port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.llama_cpp.check import check_serving, check_spec
from engine_pipeline.backends.llama_cpp.compare import differences
from engine_pipeline.backends.llama_cpp.inspect import inspect_engine
from engine_pipeline.backends.llama_cpp.runtime import RUNTIME, SUPPORTED_RUNTIME, installed
from engine_pipeline.backends.llama_cpp.steps import steps_for
from engine_pipeline.backends.llama_cpp.tools import installed_tools
from engine_pipeline.backends.port import OwnWords, ServeCommand
from engine_pipeline.spec.model import EngineKind

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.port import EngineFacts, Mismatch, Words
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec

_SERVER = "engine_pipeline.backends.llama_cpp.server"
_NAME = "engine"


class LlamaCppBackend:
    """GGUF engines for llama.cpp on the CPU. Each method's contract is `Backend`'s."""

    kind = EngineKind.LLAMA_CPP
    words: Words = OwnWords()

    def check(self, spec: BuildSpec) -> None:
        """Refuse what cannot be built, naming what can."""
        check_spec(spec)

    def plan(self, lock: BuildLock) -> tuple[Step, ...]:
        """Fetch, convert, quantise."""
        return steps_for(lock)

    def inspect(self, engine_dir: Path) -> EngineFacts:
        """What the GGUF file's header says."""
        return inspect_engine(engine_dir)

    def compare(self, lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
        """Where the engine is not what the lock asked for."""
        return differences(lock, facts)

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        """The command that serves the engine, on the runtime that `facts.runtime` names."""
        limits, serving = runtime_config["limits"], runtime_config.get("serving", {})
        check_serving(serving)
        options = {
            "model": f"{{engine}}/{facts.files[0].path}",
            "port": "{port}",
            "slots": limits["max_batch_size"],
            "context": limits["max_sequence_tokens"],
            "batch-tokens": limits["max_batch_tokens"],
            "alias": _NAME,
            "runtime": facts.runtime.get(RUNTIME, SUPPORTED_RUNTIME),
        }
        options |= {key.replace("_", "-"): value for key, value in sorted(serving.items())}
        argv = [item for key, value in options.items() for item in (f"--{key}", str(value))]
        return ServeCommand(
            argv=("{python}", "-m", _SERVER, *argv),
            health_path="/health",
            model_name=_NAME,
            # Greedy answers are bit-identical only without the prompt cache.
            request_extra={"cache_prompt": False},
        )

    def tools(self) -> dict[str, str]:
        """Installed versions of everything that decides an engine's bytes."""
        return installed_tools()

    def runtime(self) -> dict[str, str]:
        """Installed version of what loads an engine, for the record's platform."""
        return {RUNTIME: installed(RUNTIME)}
