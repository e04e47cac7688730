"""Tags to digests, and images that cannot be pulled, against a real daemon and a registry."""

from __future__ import annotations

import pytest

from engine_pipeline.docker_engine.connect import connect
from engine_pipeline.docker_engine.images import have_image
from engine_pipeline.progress import Silent
from engine_pipeline.sources.images import DockerImages
from engine_registry.errors import Incompatible, NotFound, RefusedByPolicy, Unavailable
from tests.servers.image_registry import ImageRegistry
from tests.servers.python_image import image, layer

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture(autouse=True)
def daemon(docker_daemon, monkeypatch):
    for name, value in docker_daemon.environment.items():
        monkeypatch.setenv(name, value)
    return docker_daemon


@pytest.fixture
def registry():
    registry = ImageRegistry()
    yield registry
    registry.close()


SMALL = image([layer({"/note": "small"})])


class Heard(Silent):
    def __init__(self):
        self.said = []

    def phase(self, name, detail=""):
        self.said.append((name, detail))


def test_a_tag_is_resolved_to_the_digest_that_the_registry_has_now(registry):
    registry.add("team/toolkit", "1.2.1", SMALL)
    reference = f"{registry.host}/team/toolkit:1.2.1"
    images = DockerImages()
    assert str(images.digest_of(reference)) == SMALL.digest
    moved = image([layer({"/note": "moved"})])
    registry.add("team/toolkit", "1.2.1", moved)
    assert str(images.digest_of(reference)) == moved.digest


def test_an_image_is_pulled_once_and_by_its_digest(registry, daemon):
    pinned = registry.add("team/toolkit", "1.2.1", SMALL)
    first, second = Heard(), Heard()
    client = connect()
    have_image(client, pinned, first)
    have_image(client, pinned, second)
    assert first.said == [("pull", pinned)]
    assert second.said == []
    assert client.images.get(pinned).attrs["RepoDigests"] == [pinned]


def test_what_cannot_be_had_is_told_apart(registry):
    missing = f"{registry.host}/team/toolkit"
    for ask in (
        lambda: DockerImages().digest_of(f"{missing}:none"),
        lambda: have_image(connect(), f"{missing}@sha256:{'0' * 64}", Silent()),
    ):
        with pytest.raises(NotFound) as caught:
            ask()
        assert caught.value.name == "image-not-found"
        assert missing in caught.value.message


def test_a_registry_that_wants_a_login_is_told_as_such(registry):
    pinned = registry.add("team/private", "1", SMALL)
    registry.refused = True
    for ask in (
        lambda: DockerImages().digest_of(f"{registry.host}/team/private:1"),
        lambda: have_image(connect(), pinned, Silent()),
    ):
        with pytest.raises(RefusedByPolicy) as caught:
            ask()
        assert caught.value.name == "image-pull-denied"
        assert "docker login" in caught.value.hint


def test_a_layer_that_the_registry_lost_is_told(registry):
    other = image([layer({"/note": "lost"})])
    pinned = registry.add("team/lost", "1", other)
    registry.dropped.update(other.blobs)
    with pytest.raises((NotFound, Unavailable), match="team/lost"):
        have_image(connect(), pinned, Silent())


def test_a_registry_that_is_down_is_told_as_such(registry):
    pinned = registry.add("team/down", "1", SMALL)
    registry.close()
    with pytest.raises(Unavailable) as caught:
        have_image(connect(), pinned, Silent())
    assert caught.value.name == "image-registry-unreachable"


def test_no_daemon_is_told_with_where_it_was_looked_for(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///not/there/docker.sock")
    with pytest.raises(Unavailable) as caught:
        DockerImages().digest_of("x:1")
    assert caught.value.name == "docker-not-running"


def test_a_missing_client_package_is_told_with_how_to_get_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(Incompatible, match="docker package") as caught:
        DockerImages().digest_of("x:1")
    assert "engine-ci[docker]" in caught.value.hint
