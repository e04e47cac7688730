"""A registry with a channel, real toy engines, and everything a deployment is done from."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.backends.port import Backend
from engine_pipeline.deploy.deploy import Deployed, deploy
from engine_pipeline.deploy.drift import Drift, find_drift
from engine_pipeline.progress import Progress, Silent
from engine_pipeline.promote.findings import Finding
from engine_pipeline.promote.moves import Desk
from engine_pipeline.targets.directory import DirectoryTarget
from engine_pipeline.targets.port import Target
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.engines import StoredEngine
from engine_registry.events import Promoted, RolledBack
from engine_registry.record import Actor, Platform, Release, ReleaseContent
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    TickingClock,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
)

PRODUCT = ProductRef("tiny", "cpu-x86-64-v3")
PROD = ChannelRef(PRODUCT, "prod")
RUNTIME = "2026.10.11549"
LIMITS = {
    "max_batch_size": 2,
    "max_input_tokens": 100,
    "max_sequence_tokens": 200,
    "max_batch_tokens": 128,
}


@functools.cache
def toy_gguf(name: str) -> bytes:
    """A GGUF file of one small tensor, written by the format's own library; names differ in it."""
    import gguf
    import numpy as np

    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        writer = gguf.GGUFWriter(file.name, "llama")
        writer.add_name(name)
        writer.add_block_count(1)
        writer.add_context_length(512)
        writer.add_embedding_length(32)
        writer.add_feed_forward_length(32)
        writer.add_head_count(1)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["<a>", name])
        writer.add_tensor("token_embd.weight", np.full((2, 32), 0.5, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return Path(file.name).read_bytes()


def toy_files(name: str) -> dict[str, bytes]:
    """An engine directory with a tokenizer of its own."""
    return {
        "model.gguf": toy_gguf(name),
        "tokenizer/tokenizer.json": canonical_json({"vocab": [name]}),
    }


@contextmanager
def memory_dir() -> Iterator[Path]:
    """A directory where making bytes durable costs nothing."""
    parent = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="targets-", dir=parent if parent.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def fits_all(release: Release) -> tuple[Finding, ...]:
    return (Finding(rule="sku", holds=True, says=f"{release.content.platform.sku} is here"),)


@dataclass
class Yard:
    """Where tests deploy from; `root` holds the registry and the target's directory."""

    root: Path
    product: ProductRef = PRODUCT
    clock: TickingClock = field(default_factory=TickingClock)
    backend: Callable[[str], Backend] = field(default=lambda kind: LlamaCppBackend())
    keep: int = 2
    releases: list[Release] = field(default_factory=list)

    @property
    def registry(self) -> Registry:
        return open_registry(f"file://{self.root}/engines", clock=self.clock)

    @property
    def desk(self) -> Desk:
        actor = Actor(name="dora", proved_by="os-user")
        return Desk(registry=self.registry, actor=actor, clock=self.clock)

    @property
    def channel(self) -> ChannelRef:
        return ChannelRef(self.product, "prod")

    @property
    def place(self) -> Path:
        return self.root / "srv"

    def target(self, who: str = "the tests") -> DirectoryTarget:
        return DirectoryTarget(self.place, keep=self.keep, who=who)

    def engine(self, name: str, files: dict[str, bytes] | None = None) -> StoredEngine:
        files = toy_files(name) if files is None else files
        return sample_engine(self.registry, name, files, product=self.product)

    def release(
        self, name: str, files: dict[str, bytes] | None = None, **content: object
    ) -> Release:
        """A release of an engine called `name`: a toy, unless files are given."""
        engine = self.engine(name, files)
        record = engine.records[0]
        fields: dict[str, object] = {
            "engine": engine.digest,
            "record": record.digest,
            "kind": "llama-cpp",
            "precision": "int8",
            "platform": Platform(sku=self.product.target, runtime={"xllamacpp": RUNTIME}),
            "tokenizer": Digest.of(f"tokenizer of {name}".encode()),
            "serving_image": f"embedded:xllamacpp=={RUNTIME}",
            "runtime_config": {"limits": LIMITS, "serving": {"threads": len(name)}},
        }
        release = self.registry.releases.create_release(
            self.product,
            ReleaseContent.model_validate(fields | content),
            self.desk.actor,
            self.clock(),
        )
        self.releases.append(release)
        return release

    def promote(self, release: Release, channel: str = "prod") -> int:
        """Make it live; the event's number."""
        ref = ChannelRef(self.product, channel)
        return sample_event(self.registry, sample_promotion(release), ref=ref)[0].number

    def roll_back(self, release: Release) -> int:
        change = RolledBack(to=live(release), reason="worse")
        return sample_event(self.registry, change, ref=self.channel)[0].number

    def deploy(
        self,
        target: Target | None = None,
        *,
        channel: str = "prod",
        fit: Callable[[Release], tuple[Finding, ...]] = fits_all,
        progress: Progress | None = None,
        rebind: bool = False,
        deep: bool = False,
    ) -> Deployed:
        return deploy(
            self.desk,
            ChannelRef(self.product, channel),
            target or self.target(),
            backend=self.backend,
            fit=fit,
            progress=progress or Silent(),
            rebind=rebind,
            deep=deep,
        )

    def drift(self, target: Target | None = None, *, deep: bool = False) -> Drift:
        return find_drift(self.desk, self.channel, target or self.target(), deep=deep)


__all__ = ["LIMITS", "PROD", "PRODUCT", "RUNTIME", "Promoted", "Yard", "fits_all", "toy_files"]
