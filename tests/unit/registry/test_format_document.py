"""The commands of docs/registry-format.md do what the page says."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput
from engine_registry.events import Prepared
from engine_registry.gc import Collector
from engine_registry.registry import Registry, open_registry
from engine_registry.retention import Retention
from engine_registry.sets import Fate, Member, SetDecision
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify

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


@pytest.fixture
def worked_on(filled: Registry) -> Registry:
    """With everything that sets, holds and garbage collection leave behind."""
    releases = filled.releases.releases(SAMPLE_CHANNEL.product)
    filled.holds.hold(releases[1], reason="kept", actor=SAMPLE_ACTOR, at=filled.clock())
    tight = Retention(
        live_per_channel=1,
        newest_releases=1,
        released_for=timedelta(0),
        unreleased_for=timedelta(0),
    )
    collector = Collector(filled, lambda _: tight, actor=SAMPLE_ACTOR, grace=timedelta(0))
    assert collector.discard().discarded_files > 0
    return filled


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


def test_every_check_prints_nothing_after_a_collection(
    commands: list[str], worked_on: Registry, root: Path
) -> None:
    for folder in ("trash", "holds", "touched"):
        assert any((root / folder).rglob("*.json")), folder
    assert list((root / "releases").rglob("*.retired.json"))
    for command in commands[:LIVE]:
        assert run(command, root) == ""


def test_a_flipped_byte_in_the_trash_or_in_a_hold_is_printed(
    commands: list[str], worked_on: Registry, root: Path
) -> None:
    for folder in ("trash", "holds", "touched"):
        document = next((root / folder).rglob("*.json"))
        for _ in damaged(document):
            assert str(document.relative_to(root)) in run(commands[DOCUMENTS], root)


@pytest.mark.parametrize("fate", [None, *Fate])
def test_a_reserved_release_is_live_only_if_its_set_was_committed(
    commands: list[str], filled: Registry, root: Path, fate: Fate | None
) -> None:
    first = filled.releases.releases(SAMPLE_CHANNEL.product)[0]
    change = Prepared(set="set-0a1b", to=live(first), policy=Digest.of(b"policy"))
    event, _ = sample_event(filled, change)
    if fate is not None:
        member = Member(channel=str(SAMPLE_CHANNEL), event=event.number, to=change.to)
        filled.sets.decide(
            SetDecision(
                set=change.set,
                fate=fate,
                members=(member,) if fate is Fate.COMMITTED else (),
                reason="as the test says",
                actor=SAMPLE_ACTOR,
                at=filled.clock(),
            )
        )
    (line,) = run(commands[LIVE], root).splitlines()
    state = filled.channels.state(SAMPLE_CHANNEL)
    assert state.live is not None
    assert state.live.number == (1 if fate is Fate.COMMITTED else 2)
    assert f'"number":{state.live.number}' in line
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


def _documented_order() -> list[str]:
    (listed,) = re.findall(r"copy (`channels`.*?) in this order", DOCUMENT.read_text(), re.DOTALL)
    return re.findall(r"`([^`]+)`", listed)


def test_a_copy_in_the_documented_order_is_a_whole_registry_and_until_its_last_step_none(
    worked_on: Registry, root: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    *folders, last = _documented_order()
    for name in (name for name in folders if (root / name).exists()):
        shutil.copytree(root / name, copy / name)
        with pytest.raises(InvalidInput) as caught:
            open_registry(str(copy)).channels.channels()
        assert caught.value.name == "not-a-registry"
    hint = caught.value.hint
    assert "only registry.json is missing" in hint
    (command,) = re.findall("`(.*?)`", hint)
    assert command == f"cp ORIGINAL/{last} {copy}/"
    run(command.replace("ORIGINAL", str(root)), root)
    assert verify(open_registry(str(copy))).mismatches == ()
    state = open_registry(str(copy)).channels.state(SAMPLE_CHANNEL)
    assert state == worked_on.channels.state(SAMPLE_CHANNEL)
