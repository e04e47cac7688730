"""Engines that are a chat server's behaviour, and the suite that is asked of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine_pipeline.backends.port import EngineFacts, EngineFile, OwnWords, ServeCommand
from engine_pipeline.gates.suite import Suite
from engine_pipeline.spec.model import EngineKind
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock, sample_engine

ASKED = (("capital", "Capital of France?", "Paris"), ("sum", "2 + 2?", "4"))
GOOD = {"Capital of France?": "It is Paris.", "2 + 2?": "4"}


def suite_of(*cases: dict[str, Any]) -> Suite:
    """The suite `core`: two questions, and whatever cases there are besides."""
    asked = [
        {
            "id": name,
            "tags": ["facts"],
            "messages": [{"role": "user", "content": question}],
            "checks": [{"kind": "contains", "all_of": [want]}],
        }
        for name, question, want in ASKED
    ]
    return Suite.model_validate(
        {
            "name": "core",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 16},
            "cases": [*asked, *cases],
        }
    )


SUITE = suite_of()


class ChatBackend:
    """What is asked of an engine kind; the engine is a chat server's behaviour, in JSON."""

    kind = EngineKind.LLAMA_CPP
    words = OwnWords()

    def inspect(self, engine_dir: Path) -> EngineFacts:
        path = engine_dir / "behaviour.json"
        try:
            behaviour = json.loads(path.read_text())
        except ValueError as error:
            raise InvalidInput(f"{path.name}: not JSON", hint="rebuild") from error
        size = path.stat().st_size
        return EngineFacts(
            kind=self.kind,
            format="json",
            format_version="1",
            architecture="chat",
            tensor_types={},
            parameters=0,
            files=(EngineFile(path=path.name, size_bytes=size, media_type="application/json"),),
            details=behaviour,
        )

    def serve(self, facts: EngineFacts, runtime_config: dict[str, Any]) -> ServeCommand:
        module = "engine_pipeline.gates.testing.chat_server"
        behaviour = f"{{engine}}/{facts.files[0].path}"
        argv = ("{python}", "-m", module, "--port", "{port}", "--behaviour-file", behaviour)
        return ServeCommand(argv=(*argv, *runtime_config.get("options", ())), model_name="engine")


def registry_at(folder: Path) -> Registry:
    """A registry in a folder, founded or opened again."""
    opened = open_registry(str(folder / "registry"), TickingClock())
    opened.stores.blobs.add_bytes(b"founds it")
    return opened


def engine_of(registry: Registry, **behaviour: Any) -> Digest:
    """An engine that answers well, save for what is said of it."""
    data = canonical_json({"answers": GOOD, **behaviour})
    return sample_engine(registry, str(sorted(behaviour.items())), {"behaviour.json": data}).digest
