"""What the pipeline asks of an engine kind. A new kind is a folder here and one line in wiring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import Field

from engine_pipeline.spec.model import EngineKind
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec
    from engine_registry.errors import EngineCIError


class EngineFile(Value):
    """One file of an engine directory and the role it plays in the manifest."""

    path: str
    size_bytes: Annotated[int, Field(ge=0)]
    media_type: str


class EngineFacts(Document):
    """What the files of an engine directory say about themselves, read offline.

    Attributes:
        format: e.g. `gguf`; `format_version` as the file states it.
        tensor_types: how many tensors are stored as which type, e.g. {"Q8_0": 211, "F32": 61}.
        parameters: number of weights.
        context_tokens: the longest context the model was made for.
        runtime: versions the file binds itself to, if it does.
        details: further facts of this kind, for people.
    """

    kind: EngineKind
    format: Slug
    format_version: str
    architecture: str
    tensor_types: dict[str, int]
    parameters: int
    context_tokens: int | None = None
    tokenizer: Digest | None = None
    chat_template: Digest | None = None
    runtime: dict[str, str] = {}
    files: tuple[EngineFile, ...]
    details: dict[str, Any] = {}


class Mismatch(Value):
    """One fact that is not what the lock asked for; both sides."""

    what: str
    wanted: str
    found: str
    hint: str


class ServeCommand(Value):
    """How to start a server for an engine: a command that stays in the foreground.

    The server listens on the address `{host}` at the port `{port}`, placeholders in `argv`, and
    offers an OpenAI-compatible API below `/v1`. On this machine `{host}` is 127.0.0.1; in a
    container it is the container's own address, and only 127.0.0.1 leads there.

    Attributes:
        argv: may hold `{python}`, `{engine}` (the engine directory), `{host}` and `{port}`.
        health_path: answers 200 exactly when the engine is loaded.
        model_name: what to send as `model`.
        request_extra: fields of requests whose answers are compared, to make those reproducible;
            load goes without.
        gpus: how many GPUs the server needs.
        shm_bytes: shared memory it needs; containers get too little by default.
    """

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    env: dict[str, str] = {}
    health_path: str = "/health"
    model_name: str
    request_extra: dict[str, Any] = {}
    gpus: Annotated[int, Field(ge=0)] = 0
    shm_bytes: Annotated[int, Field(ge=0)] = 0


class Words(Protocol):
    """What an engine kind makes of text that its tools and servers print. Pure."""

    def step_error(self, step: str, lines: Iterable[str]) -> EngineCIError | None:
        """The error that a step ended with; None if none of its lines is known."""
        ...

    def load_error(self, name: str, lines: Iterable[str]) -> EngineCIError | None:
        """Why a server gave up on the engine; None if none of its lines is known."""
        ...

    def load_warnings(self, lines: Iterable[str]) -> tuple[str, ...]:
        """What a server that got ready had to say against the engine, each in a sentence."""
        ...


class OwnWords:
    """Of kinds whose tools and servers are this project's: they end with an error of their own."""

    def step_error(self, step: str, lines: Iterable[str]) -> EngineCIError | None:  # noqa: ARG002
        """None: see `runners.protocol`."""
        return None

    def load_error(self, name: str, lines: Iterable[str]) -> EngineCIError | None:  # noqa: ARG002
        """None: see `runners.protocol`."""
        return None

    def load_warnings(self, lines: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002
        """None of these servers warns."""
        return ()


class Backend(Protocol):
    """One engine kind. `check`, `plan`, `compare` and `serve` are pure; `inspect` only reads."""

    kind: EngineKind
    words: Words

    def check(self, spec: BuildSpec) -> None:
        """Refuse in milliseconds what this kind cannot build.

        Raises:
            InvalidInput: a field has a value this kind does not know; names the ones it knows.
            Incompatible: precision or version impossible on that SKU; names the ones that work.
        """
        ...

    def plan(self, lock: BuildLock) -> tuple[Step, ...]:
        """The steps from source to engine directory; the last step's output is the engine."""
        ...

    def inspect(self, engine_dir: Path) -> EngineFacts:
        """Read what the files say.

        Raises:
            InvalidInput: not an engine of this kind, truncated, empty or foreign; says which.
        """
        ...

    def compare(self, lock: BuildLock, facts: EngineFacts) -> tuple[Mismatch, ...]:
        """Where the engine is not what the lock asked for; empty means they agree."""
        ...

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        """The command that serves this engine with a release's runtime configuration."""
        ...
