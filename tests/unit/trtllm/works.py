"""The whole build act and the gate, with the stand-in on the PATH and boards of a recording."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_pipeline.build.build import BuildResult, build
from engine_pipeline.build.machine import Machine, host_gpus
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Report
from engine_pipeline.gates.run import run_gate
from engine_pipeline.gates.suite import Suite
from engine_pipeline.progress import Silent
from engine_pipeline.promote.release import runtime_config
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.spec.hardware import Host
from engine_pipeline.spec.lock import BuildLock
from engine_pipeline.spec.lock_file import write_lock
from engine_registry.digest import Digest
from engine_registry.record import Actor, Record
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock
from tests.servers.gpus import recorded
from tests.standin.install import Installed
from tests.unit.trtllm.models import lock, spec, toy_config, write_model

ALICE = Actor(name="alice", proved_by="os-user")
BACKEND = TrtllmBackend()
# The least driver that goes with 1.2.1; the recording's own is older.
DRIVER = "590.44.01"
GIB = 1 << 30
SUITE = Suite.model_validate(
    {
        "name": "short",
        "owner": "the tests",
        "description": "One prompt.",
        "model": "toy",
        "reference": {"spec": "toy/h100-sxm-80gb-fp16", "note": "written by hand"},
        "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 8},
        "cases": [
            {
                "id": "heard",
                "tags": ["facts"],
                "messages": [{"role": "user", "content": "a b c"}],
                "checks": [{"kind": "contains", "all_of": ["stand-in heard"]}],
            }
        ],
    }
)


def machine(driver: str | None = DRIVER) -> Machine:
    """Eight H100 SXM, by the recording of such a machine."""
    inventory = recorded("h100-sxm-8").model_copy(update={"driver": driver})
    return Machine(
        host=Host(architecture="x86_64", flags=frozenset(), gpus=host_gpus(inventory)),
        cpu_model="Toy CPU",
        cores=2,
        ram_bytes=64 * GIB,
        ram_free_bytes=64 * GIB,
        inventory=inventory,
    )


@dataclass
class Works:
    """One registry, one step cache, one stand-in."""

    root: Path
    installed: Installed
    machine: Machine = field(default_factory=machine)

    def __post_init__(self) -> None:
        self.registry: Registry = open_registry(str(self.root / "registry"), TickingClock())
        self.cache = StepCache(self.root / "cache")

    def lock(self, seed: str = "weights", **changes: Any) -> BuildLock:
        """A lock beside its source, whose weights follow from `seed`."""
        source = self.root / "locks" / seed
        config = toy_config("llama")
        files = write_model(source, config, seed)
        options = changes.pop("backend__options", {})
        changed = spec(
            model__source=f"file://{seed}",
            backend__options={"examples-dir": str(self.installed.examples_dir), **options},
            **changes,
        )
        return lock(changed, config, files).model_copy(update={"tools": BACKEND.tools()})

    def build(self, seed: str = "weights", **changes: Any) -> BuildResult:
        locked = self.lock(seed, **changes)
        path = self.root / "locks" / "toy.lock.json"
        write_lock(locked, path)
        return build(
            locked,
            path.read_bytes(),
            lock_path=path,
            registry=self.registry,
            runner=LocalRunner(),
            cache=self.cache,
            backend=BACKEND,
            machine=self.machine,
            progress=Silent(),
            actor=ALICE,
            clock=self.registry.clock,
        )

    def record(self, engine: Digest) -> Record:
        return self.registry.engines.records(engine)[0]

    def gate(self, engine: Digest, **policy: Any) -> Report:
        locked = self.lock()
        report, _ = run_gate(
            registry=self.registry,
            engine=engine,
            gate="short",
            policy=GatePolicy.model_validate(
                {"suite": "short", "quality": {"min_score": 0.9}, "load_timeout_s": 30, **policy}
            ),
            suite=SUITE,
            backend=BACKEND,
            runtime_config=runtime_config(locked),
            device=Device(
                sku="h100-sxm-80gb",
                host_class="test host",
                cpu_model="test",
                cores=2,
                runtime=self.record(engine).platform.runtime,
            ),
            progress=Silent(),
            clock=self.registry.clock,
            workdir=self.root / "gates",
        )
        return report

    def forget_steps(self) -> None:
        """Empty the step cache: what comes next is built anew."""
        shutil.rmtree(self.cache.root)
