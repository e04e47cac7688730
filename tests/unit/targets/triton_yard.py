"""A yard whose target is a Triton stand-in, with engines of both TensorRT-LLM kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_pipeline.targets.definition import TritonDefinition
from engine_pipeline.targets.triton.target import TritonTarget
from engine_registry.digest import Digest
from engine_registry.record import Release
from engine_registry.refs import ProductRef
from tests.servers.triton import TritonServer, mark
from tests.servers.triton_templates import write_templates
from tests.unit.targets import gpu_engines
from tests.unit.targets.yard import LIMITS, Yard

SEEN_AS = "/srv/triton"
PRODUCT = ProductRef("llama", gpu_engines.SKU)


@dataclass
class TritonYard(Yard):
    """`server` is set while it runs; `settings` and the like go into the target's definition."""

    product: ProductRef = PRODUCT
    definition: dict[str, Any] = field(default_factory=dict)
    server: TritonServer = field(init=False)
    templates: Path = field(init=False)
    marks: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.backend = gpu_engines.backend_for
        self.templates = write_templates(self.root)

    @contextmanager
    def serving(self, **server: Any) -> Iterator[TritonServer]:
        repository = self.place / "current" / "models"
        with TritonServer(repository, seen={SEEN_AS: self.place}, **server) as running:
            self.server = running
            yield running

    def target(self, who: str = "the tests") -> TritonTarget:
        fields = {
            "kind": "triton",
            "channel": str(self.channel),
            "path": str(self.place),
            "url": self.server.url,
            "templates": str(self.templates),
            "seen_as": SEEN_AS,
            "keep": self.keep,
        }
        return TritonTarget(TritonDefinition.model_validate(fields | self.definition), who=who)

    def engine_release(
        self,
        name: str,
        *,
        tokenizer: str = "one",
        tensor: int = 1,
        pipeline: int = 1,
        serving: dict[str, Any] | None = None,
        **model: Any,
    ) -> Release:
        """A release of a TensorRT engine."""
        files = gpu_engines.engine_files(
            name, tensor=tensor, pipeline=pipeline, tokenizer=tokenizer, **model
        )
        plans = [data for path, data in sorted(files.items()) if path.endswith(".engine")]
        return self._released(
            name,
            files,
            "".join(map(mark, plans)) + " " + mark(files["tokenizer/tokenizer.json"]),
            kind="trtllm-engine",
            platform=gpu_engines.platform(tensor, pipeline),
            tokenizer=Digest.of(tokenizer.encode()),
            runtime_config={"limits": LIMITS, "serving": serving or {}},
        )

    def checkpoint_release(
        self,
        name: str,
        *,
        tokenizer: str = "one",
        tensor: int = 1,
        serving: dict[str, Any] | None = None,
    ) -> Release:
        """A release of a checkpoint."""
        files = gpu_engines.checkpoint_files(name, tensor=tensor, tokenizer=tokenizer)
        return self._released(
            name,
            files,
            mark(files["model.safetensors"]) + " " + mark(files["tokenizer.json"]),
            kind="trtllm-checkpoint",
            platform=gpu_engines.platform(tensor, kind="trtllm-checkpoint"),
            tokenizer=Digest.of(tokenizer.encode()),
            runtime_config={"limits": LIMITS, "serving": serving or {}},
        )

    def _released(
        self, name: str, files: dict[str, bytes], answers: str, **content: object
    ) -> Release:
        release = self.release(name, files, serving_image=gpu_engines.IMAGE, **content)
        self.marks[release.number] = answers
        return release

    def answers(self) -> int | str:
        """The release whose engine and tokenizer answer now; else what was said."""
        said = self.server.ask()
        return next((number for number, mark in self.marks.items() if mark == said), said)

    def config(self, model: str) -> str:
        return (self.place / "current" / "models" / model / "config.pbtxt").read_text()
