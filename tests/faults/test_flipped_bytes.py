"""One byte flipped in any stored file is found, wherever it is."""

from pathlib import Path

import pytest

from engine_registry.backends.memory import Files, memory_stores
from engine_registry.errors import EngineCIError
from engine_registry.events import Frozen, RolledBack
from engine_registry.mismatch import MismatchKind
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    TickingClock,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify

POSITIONS = {"first": 0.0, "middle": 0.5, "last": 1.0}


def populate(registry: Registry) -> None:
    releases = []
    for name in ("one", "two"):
        engine = sample_engine(registry, name, {"m.gguf": name.encode(), "c.json": b"{}"})
        report = sample_report(registry, engine.digest)
        releases.append(sample_release(registry, engine, evidence=(report,)))
        sample_event(registry, sample_promotion(releases[-1]))
    sample_event(registry, Frozen(reason="incident"))
    sample_event(registry, RolledBack(to=live(releases[0]), reason="slower"))
    registry.stores.blobs.add_bytes(b"reached by nothing")


def flip(data: bytes, position: float) -> bytes:
    changed = bytearray(data)
    changed[round(position * (len(data) - 1))] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())
def test_invariant_2_a_byte_flipped_in_any_stored_file_is_found(
    fast_dir: Path, position: float
) -> None:
    root = fast_dir / "registry"
    registry = open_registry(str(root), TickingClock())
    populate(registry)
    assert verify(registry).is_whole
    derived = {"cache", "tmp"}
    stored = [
        path
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in derived
    ]
    assert len(stored) > 35
    for path in stored:
        name = str(path.relative_to(root))
        before = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(flip(before, position))
        try:
            report = verify(open_registry(str(root)))
        except EngineCIError:
            assert name == "registry.json"  # nothing in it is believed at all
        else:
            damaged = {m.name for m in report.mismatches if m.kind is MismatchKind.DAMAGED}
            assert damaged == {name}
        path.write_bytes(before)
    assert verify(registry).is_whole


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())
def test_invariant_2_a_byte_flipped_anywhere_in_memory_is_found(position: float) -> None:
    files: Files = {}
    registry = Registry(memory_stores(TickingClock(), files), TickingClock())
    populate(registry)
    for name, before in list(files.items()):
        files[name] = flip(before, position)
        damaged = {m.name for m in verify(registry).mismatches if m.kind is MismatchKind.DAMAGED}
        assert damaged == {name}
        files[name] = before
    assert verify(registry).is_whole
