"""The commands of docs/registry-format.md do what the page says."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.registry import Registry
from engine_registry.testing.samples import (
    SAMPLE_CHANNEL,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "registry-format.md"
BLOBS, DOCUMENTS, CHAIN, COMPLETE, LIVE = range(5)


@pytest.fixture(scope="module")
def commands() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture
def filled(on_disk: Registry) -> Registry:
    for name in ("one", "two"):
        engine = sample_engine(on_disk, name, {"m.gguf": name.encode()})
        report = sample_report(on_disk, engine.digest)
        release = sample_release(on_disk, engine, evidence=(report,))
        # A reason may try to look like a field.
        promotion = sample_promotion(release).model_copy(
            update={"reason": '"previous":null,"schema_version"'}
        )
        sample_event(on_disk, promotion)
    return on_disk


def run(command: str, root: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env={"REGISTRY": str(root), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def damaged(path: Path) -> Iterator[None]:
    """Flip a bit of the first, a middle and the last byte in turn, then put it right again."""
    before = path.read_bytes()
    path.chmod(0o644)
    for at in (0, len(before) // 2, len(before) - 1):
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        yield
    path.write_bytes(before)


def test_every_check_prints_nothing_on_a_whole_registry(
    commands: list[str], filled: Registry, root: Path
) -> None:
    assert len(commands) == LIVE + 1
    for command in commands[:LIVE]:
        assert run(command, root) == ""


def test_every_check_prints_nothing_on_a_registry_without_channels(
    commands: list[str], on_disk: Registry, root: Path
) -> None:
    sample_engine(on_disk)
    for command in commands:
        assert run(command, root) == ""


def test_a_flipped_byte_in_any_blob_is_printed(
    commands: list[str], filled: Registry, root: Path
) -> None:
    for blob in sorted((root / "blobs" / "sha256").iterdir())[:4]:
        for _ in damaged(blob):
            assert f"{blob.name}: FAILED" in run(commands[BLOBS], root)


def test_a_flipped_byte_in_any_document_is_printed(
    commands: list[str], filled: Registry, root: Path
) -> None:
    documents = [
        root / "registry.json",
        root / layout.head(SAMPLE_CHANNEL),
        root / layout.event(SAMPLE_CHANNEL, 1),
        next((root / "records").rglob("*.json")),
        next((root / "keys").rglob("*.json")),
        next((root / "referrers").rglob("*.json")),
        next((root / "releases").rglob("*.json")),
    ]
    for document in documents:
        for _ in damaged(document):
            assert str(document.relative_to(root)) in run(commands[DOCUMENTS], root)


def test_a_rewritten_event_is_printed_where_the_chain_breaks(
    commands: list[str], filled: Registry, root: Path
) -> None:
    path = root / layout.event(SAMPLE_CHANNEL, 1)
    body = canonical_json({"operation": "rewritten", "previous": None, "schema_version": 1})
    path.chmod(0o644)
    path.write_bytes(b'{"digest":"%s","document":%s}\n' % (str(Digest.of(body)).encode(), body))
    assert run(commands[DOCUMENTS], root) == ""
    assert run(commands[CHAIN], root) == (f"{layout.event(SAMPLE_CHANNEL, 2)}: does not follow\n")


def test_a_missing_event_is_printed(commands: list[str], filled: Registry, root: Path) -> None:
    (root / layout.event(SAMPLE_CHANNEL, 1)).unlink()
    assert "event 1 is missing" in run(commands[CHAIN], root)


def test_a_missing_blob_is_printed_with_the_engine_that_lacks_it(
    commands: list[str], filled: Registry, root: Path
) -> None:
    engine = filled.engines.engine(next(filled.engines.all_engines()))
    (root / layout.blob(engine.manifest.layers[0].digest)).unlink()
    assert run(commands[COMPLETE], root) == (
        f"{layout.records(engine.digest)}: lacks {engine.manifest.layers[0].digest.hex}\n"
    )
    (root / layout.blob(engine.digest)).unlink()
    assert run(commands[COMPLETE], root) == f"{layout.records(engine.digest)}: no manifest\n"


def test_what_is_live_is_read_from_the_log_alone(
    commands: list[str], filled: Registry, root: Path
) -> None:
    (root / layout.head(SAMPLE_CHANNEL)).unlink()
    live = filled.channels.state(SAMPLE_CHANNEL).live
    assert live is not None
    (line,) = run(commands[LIVE], root).splitlines()
    assert line.startswith(layout.events(SAMPLE_CHANNEL))
    assert str(live.engine) in line
    assert '"number":2' in line
