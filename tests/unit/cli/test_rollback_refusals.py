"""Rollbacks that cannot go where they were to go: what is said, and that the next command works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.documents import seal
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.retired import Retired
from engine_registry.testing.samples import SAMPLE_ACTOR, SAMPLE_AT

PRODUCT = ProductRef("tiny", "cpu-x86-64-v3")
CHANNEL = ChannelRef(PRODUCT, "staging")
REASON = "p95 doubled; it's `bad`"


class Scene:
    """A channel on which releases 1, 2 and 3 were live, in this order."""

    def __init__(self, project) -> None:
        self.project = project
        self.releases = [project.release(name) for name in ("one", "two", "three")]
        for release in self.releases:
            assert project.run("promote", release.name, "--to", "staging").code == 0

    @property
    def root(self) -> Path:
        return self.project.root / "engines"

    def path(self, number: int) -> Path:
        return self.root / layout.release(ReleaseRef(PRODUCT, number))

    def event(self, number: int) -> Path:
        return self.root / layout.event(CHANNEL, number)

    def weights(self, number: int) -> Path:
        engine = self.releases[number - 1].content.engine
        manifest = self.project.registry.engines.engine(engine).manifest
        return self.root / layout.blob(manifest.layers[0].digest)

    def retire(self, number: int) -> None:
        release = self.releases[number - 1]
        gone = Retired(
            model=release.model,
            target=release.target,
            number=number,
            release=release.digest,
            engine=release.content.engine,
            reason="the test says so",
            actor=SAMPLE_ACTOR,
            at=SAMPLE_AT,
        )
        (self.root / layout.retired(ReleaseRef(PRODUCT, number))).write_bytes(seal(gone))
        self.path(number).unlink()

    def live(self) -> int:
        live = self.project.registry.channels.state(CHANNEL).live
        assert live is not None
        return live.number


@pytest.fixture
def scene(project) -> Scene:
    return Scene(project)


def junk(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"junk")


def pasted(text: str) -> list[list[str]]:
    """The `enginectl` commands of a hint, as a shell would read them."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(enginectl [^`]*)`", text)]


CAUSES = {
    "its document is damaged": (lambda s: junk(s.path(2)), 11, "document-damaged"),
    "its document is absent": (lambda s: s.path(2).unlink(), 8, "release-missing"),
    "it was retired": (lambda s: s.retire(2), 8, "release-retired"),
    "its bytes are missing": (lambda s: s.weights(2).unlink(), 8, "blob-missing"),
    "its bytes are damaged": (lambda s: junk(s.weights(2)), 11, "blob-damaged"),
}


@pytest.mark.parametrize(
    "asked",
    [(), ("--to", "2"), ("--to", "tiny/cpu-x86-64-v3:2")],
    ids=["by default", "by number", "by name"],
)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_release_that_is_not_whole_is_named_with_the_next_one_and_its_command_works(
    scene: Scene, cause: str, asked: tuple[str, ...]
) -> None:
    damage, code, reference = CAUSES[cause]
    damage(scene)
    refused = scene.project.run("rollback", str(CHANNEL), *asked, "--reason", REASON)
    assert refused.code == code
    first, then = refused.err.splitlines()
    engine = scene.releases[1].content.engine.short
    assert first.startswith(
        f"error[{reference}]: rollback of {CHANNEL} to release 2 (engine {engine}) refused: "
    )
    assert "release 1 is whole" in then
    assert scene.live() == 3
    (command,) = pasted(then)
    assert command[-1] == REASON.replace("`", "'")
    assert scene.project.run(*command).code == 0
    assert scene.live() == 1


@pytest.mark.parametrize("by_digest", [False, True])
def test_a_release_of_another_product_is_refused_and_not_taken_for_the_same_number_here(
    scene: Scene, by_digest: bool
) -> None:
    other = scene.project.release("other", product=ProductRef("tiny", "a100"))
    named = str(other.content.engine) if by_digest else other.name
    refused = scene.project.run("rollback", str(CHANNEL), "--to", named, "--reason", "x")
    assert refused.code == 2
    assert "error[other-product]" in refused.err
    assert "that is a release of tiny/a100" in refused.err
    assert scene.live() == 3


def test_where_no_other_release_is_whole_the_error_says_that_too(scene: Scene) -> None:
    junk(scene.path(1))
    scene.weights(2).unlink()
    refused = scene.project.run("rollback", str(CHANNEL), "--reason", "x")
    assert refused.code == 8
    assert "no other release that was live there is whole; run `enginectl verify`" in refused.err


def test_a_release_that_is_marked_bad_comes_back_by_the_command_of_the_refusal(
    scene: Scene,
) -> None:
    assert scene.project.run("rollback", str(CHANNEL), "--reason", "three bad").code == 0
    refused = scene.project.run("rollback", str(CHANNEL), "--to", "3", "--reason", REASON)
    assert refused.code == 5
    other, same = pasted(refused.err.splitlines()[1])
    assert other[other.index("--to") + 1] == "1"
    assert scene.project.run(*same).code == 0
    assert scene.live() == 3


def test_where_all_are_marked_bad_the_last_one_comes_back_by_the_command_of_the_refusal(
    scene: Scene,
) -> None:
    for reason in ("three bad", "two bad"):
        assert scene.project.run("rollback", str(CHANNEL), "--reason", reason).code == 0
    refused = scene.project.run("rollback", str(CHANNEL), "--reason", REASON)
    assert refused.code == 8
    _, command = pasted(refused.err.splitlines()[1])
    assert scene.project.run(*command).code == 0
    assert scene.live() == 2


def test_the_next_command_is_for_the_registry_and_the_policies_of_this_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINECTL_REGISTRY", "file:///nowhere")
    scene.path(2).unlink()
    where = ("--registry", f"file://{scene.root}", "--channels", "other channels.yaml")
    refused = scene.project.run("rollback", str(CHANNEL), "--reason", "x", *where)
    (command,) = pasted(refused.err.splitlines()[1])
    assert tuple(command[-4:]) == where
    assert scene.project.run(*command).code == 0
    assert scene.live() == 1


def test_a_hint_for_the_registry_of_the_environment_names_none(scene: Scene) -> None:
    scene.path(2).unlink()
    refused = scene.project.run("rollback", str(CHANNEL), "--reason", "x")
    assert "--registry" not in refused.err


@pytest.mark.parametrize("harm", [junk, Path.unlink], ids=["junk", "missing"])
@pytest.mark.parametrize("number", [1, 2])
def test_damage_to_an_old_event_keeps_nobody_from_rollback_and_freeze(
    scene: Scene, harm, number: int
) -> None:
    harm(scene.event(number))
    back = scene.project.run("rollback", str(CHANNEL), "--to", "1", "--reason", "x")
    assert back.code == 0
    assert scene.live() == 1
    assert scene.project.run("freeze", str(CHANNEL), "--reason", "y").code == 0
    assert scene.project.run("hold", str(CHANNEL), "--lift", "--reason", "z").code == 0


def test_damage_to_an_old_event_is_said_with_what_to_do(scene: Scene, caplog) -> None:
    junk(scene.event(1))
    assert scene.project.run("rollback", str(CHANNEL), "--reason", "x").code == 0
    assert f"{layout.event(CHANNEL, 1)}: no envelope" in caplog.text
    assert "docs/operations.md" in caplog.text


@pytest.mark.parametrize("harm", [junk, Path.unlink], ids=["junk", "missing"])
def test_a_promotion_waits_until_the_log_is_whole_again(scene: Scene, harm) -> None:
    kept = scene.event(1).read_bytes()
    harm(scene.event(1))
    name = scene.project.release("four").name
    refused = scene.project.run("promote", name, "--to", "staging")
    assert refused.code == 11
    assert "from a copy of the registry, as docs/operations.md says" in refused.err
    scene.event(1).unlink(missing_ok=True)
    scene.event(1).write_bytes(kept)
    assert scene.project.run("promote", name, "--to", "staging").code == 0


@pytest.mark.parametrize("harm", [junk, Path.unlink], ids=["junk", "missing"])
def test_damage_to_the_newest_event_stops_a_rollback(scene: Scene, harm) -> None:
    harm(scene.event(3))
    refused = scene.project.run("rollback", str(CHANNEL), "--reason", "x")
    assert refused.code == 11
    assert "docs/operations.md" in refused.err
    assert not scene.event(4).exists()


def test_an_event_that_contradicts_the_next_one_stops_a_rollback(scene: Scene) -> None:
    body = json.loads(scene.event(1).read_bytes())["document"]
    from engine_registry.events import Event

    rewritten = Event.model_validate_json(json.dumps(body | {"operation": "rewritten"}))
    scene.event(1).unlink()
    scene.event(1).write_bytes(seal(rewritten))
    refused = scene.project.run("rollback", str(CHANNEL), "--to", "1", "--reason", "x")
    assert refused.code == 11
    assert "event 2 says the one before is" in refused.err


@pytest.mark.parametrize("by_variable", [False, True])
def test_policies_that_are_a_directory_keep_nobody_from_rolling_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    named = ("--channels", str(scene.project.root))
    if by_variable:
        monkeypatch.setenv("ENGINECTL_CHANNELS", str(scene.project.root))
        named = ()
    back = scene.project.run("rollback", str(CHANNEL), "--reason", "x", *named)
    assert back.code == 0
    assert f"nodes are not asked: policies: {scene.project.root} is a directory" in back.err
    refused = scene.project.run("promote", scene.releases[2].name, "--to", "staging", *named)
    assert refused.code == 2
    assert "error[channels-unreadable]" in refused.err


def test_policies_that_nobody_may_read_keep_nobody_from_rolling_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scene.project.root / "channels.yaml"
    read = Path.read_bytes

    def forbidden(path: Path) -> bytes:
        if path.name == file.name:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    back = scene.project.run("rollback", str(CHANNEL), "--reason", "x")
    assert back.code == 0
    assert "nodes are not asked: channels.yaml: cannot be read: Permission denied" in back.err
