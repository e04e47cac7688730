"""A node that serves from a bucket: what `deploy` leaves near, and `enginectl cache`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from engine_registry.registry import Registry
from tests.integration.test_targets_cli import CHANNEL, Desk, directory
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, serving
from tests.unit.targets.yard import Yard, memory_dir

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.usefixtures("s3_credentials")


@dataclass
class BucketYard(Yard):
    """A yard whose registry is in a bucket."""

    server: S3Server | None = None
    url: str = ""

    @property
    def registry(self) -> Registry:
        assert self.server is not None
        return Registry(self.server.stores(self.url), self.clock, self.url)


@dataclass
class Node:
    """One serving machine, the registry it serves from, and the bucket's list of requests."""

    desk: Desk
    yard: BucketYard
    fake: FakeS3
    laid_out: list[str] = field(default_factory=list)

    def deploy(self, name: str = "srv") -> int:
        """Deploy; how many requests read a file of an engine."""
        self.fake.requests.clear()
        done = self.desk.run("deploy", "--target", name)
        assert done.code == 0, done.err
        return self.fetched()

    def fetched(self) -> int:
        sizes = {
            layer.digest.hex
            for release in self.yard.releases
            for layer in self.yard.registry.engines.manifest(release.content.engine).layers
        }
        reads = [line for line in self.fake.requests if line.startswith("GET ")]
        return sum(line.rsplit("/", 1)[1] in sizes for line in reads)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, capsys) -> Iterator[Node]:
    fake = FakeS3()
    with memory_dir() as folder, serving(fake) as endpoint:
        server = S3Server(endpoint)
        url = server.url()
        server.founded(url)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("ENGINECTL_REGISTRY", url)
        monkeypatch.setenv("ENGINECTL_ACTOR", "dora")
        monkeypatch.setenv("ENGINECTL_CACHE", str(folder / "cache"))
        monkeypatch.setenv("ENGINECTL_CACHE_LIMIT", "1GB")
        for name in ("GITHUB_ACTIONS", "GITLAB_CI", "ENGINECTL_CHANNELS", "ENGINECTL_TARGETS"):
            monkeypatch.delenv(name, raising=False)
        desk = Desk(folder, capsys)
        desk.targets(srv=directory(desk, "srv", keep=1), other=directory(desk, "other", keep=0))
        yield Node(desk, BucketYard(folder, server=server, url=url), fake)


def test_a_rollback_to_what_was_served_here_reads_no_byte_of_the_engine_from_the_bucket(
    node: Node,
):
    old, new = node.yard.release("a"), node.yard.release("b")
    node.yard.promote(old)
    assert node.deploy("other") == 2  # keeps nothing of its own
    node.yard.promote(new)
    assert node.deploy("other") == 2
    assert not list((node.desk.root / "other/engines").glob(f"{old.content.engine.short}*"))
    node.yard.roll_back(old)
    assert node.deploy("other") == 0
    engine = node.desk.root / "other/current/engine"
    assert (engine / "model.gguf").stat().st_nlink > 1  # linked, not copied


def test_a_second_place_on_the_node_fetches_nothing(node: Node):
    node.yard.promote(node.yard.release("a"))
    assert node.deploy("srv") == 2
    assert node.deploy("other") == 0


def test_without_a_limit_nothing_is_kept(node: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ENGINECTL_CACHE_LIMIT")
    node.yard.promote(node.yard.release("a"))
    assert node.deploy("srv") == node.deploy("other") == 2
    assert not (node.desk.root / "cache").exists()
    said = node.desk.run("cache", "list")
    assert said.code == 0
    assert "no room; set ENGINECTL_CACHE_LIMIT" in said.out
    assert "nothing is kept: ENGINECTL_CACHE_LIMIT is not set" in node.desk.run("cache", "fill").out


def test_a_registry_on_the_same_file_system_needs_no_cache(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    yard = Yard(node.desk.root)
    monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{node.desk.root}/engines")
    yard.promote(yard.release("a"))
    assert node.desk.run("deploy", "--target", "srv").code == 0
    assert not (node.desk.root / "cache").exists()


def test_the_list_says_what_keeps_each_engine_and_what_is_not_here(node: Node):
    old, new = node.yard.release("a"), node.yard.release("b")
    node.yard.promote(old)
    node.yard.promote(new)
    node.deploy("srv")
    listed = node.desk.run("cache", "list")
    assert f"release 2, live on {CHANNEL}, deployed to {node.desk.root}/srv" in listed.out
    assert f"{old.content.engine.short}  is not here" in listed.out
    assert "next: `enginectl cache fill`" in listed.out
    assert node.desk.run("cache", "fill").code == 0
    document = node.desk.run("cache", "list", "--output", "json").json
    assert document["lacking"] == []
    assert {line["engine"] for line in document["kept"]} == {
        str(release.content.engine) for release in (old, new)
    }
    assert document["limit_bytes"] == 10**9
    node.yard.roll_back(old)
    assert node.deploy("srv") == 0


def test_a_release_can_be_fetched_before_it_is_live(node: Node):
    release = node.yard.release("a")
    filled = node.desk.run("cache", "fill", release.name)
    assert filled.code == 0
    assert f"ok {release.content.engine.short} is here" in filled.out
    node.yard.promote(release)
    assert node.deploy("srv") == 0


def test_a_trim_is_planned_first_and_keeps_what_is_served(node: Node):
    served, other = node.yard.release("a"), node.yard.release("b")
    node.yard.promote(served)
    node.deploy("srv")
    node.desk.run("cache", "fill", other.name)
    planned = node.desk.run("cache", "trim", "--to", "0")
    assert planned.out.startswith("plan: would evict 1 engine")
    assert "next: `enginectl cache trim --to 0 --yes`" in planned.out
    done = node.desk.run("cache", "trim", "--to", "0", "--yes", "--output", "json").json
    assert done["done"]
    assert [line["engine"] for line in done["evicted"]] == [str(other.content.engine)]
    assert [line["engine"] for line in done["kept"]] == [str(served.content.engine)]
    assert done["over_bytes"] == done["kept_bytes"] > 0


def test_a_limit_that_is_no_amount_is_refused_before_anything_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ENGINECTL_CACHE_LIMIT", "plenty")
    refused = node.desk.run("cache", "list")
    assert refused.code == 2
    assert "error[invalid-cache-limit]: ENGINECTL_CACHE_LIMIT: 'plenty' is no amount" in refused.err
