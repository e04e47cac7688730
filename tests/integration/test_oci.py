"""Push and pull, against a real Distribution server and one that can be told to fail."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from oras.provider import Registry as OrasRegistry

from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.errors import (
    EngineCIError,
    IntegrityError,
    InvalidInput,
    NotFound,
    Unavailable,
)
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.oci.blobs import BlobUpload, chunk_bytes_for
from engine_registry.oci.credentials import Credentials
from engine_registry.oci.download import fetch_blob
from engine_registry.oci.pull import pull
from engine_registry.oci.push import Pushed, push
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote
from engine_registry.record import Release
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_engine,
    sample_release,
    sample_report,
)
from engine_registry.transfer_cargo import Part
from engine_registry.transfer_plan import ReleaseStep
from engine_registry.verify import verify
from tests.servers.distribution import distribution
from tests.servers.oci_registry import INDEX, Fault, OciRegistry

ONE = ReleaseRef(SAMPLE_PRODUCT, 1)
# Three chunks of 1 MiB and a bit.
WEIGHTS = hashlib.shake_256(b"weights").digest((3 << 20) + 12_345)
FILES = {"model.gguf": WEIGHTS, "config.json": b"{}", "tokenizer/tokenizer.json": b"[1]"}
MIB = 1 << 20


def in_memory() -> Registry:
    clock = TickingClock()
    return Registry(memory_stores(clock), clock)


@pytest.fixture
def source() -> Registry:
    registry = in_memory()
    engine = sample_engine(registry, files=FILES)
    sample_release(registry, engine, evidence=(sample_report(registry, engine.digest),))
    return registry


@pytest.fixture
def release(source: Registry) -> Release:
    return source.releases.release(ONE)


@pytest.fixture
def fake() -> Iterator[OciRegistry]:
    server = OciRegistry()
    yield server
    server.close()


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with distribution() as host:
        yield host


@pytest.fixture(params=["distribution", "with referrers API", "without referrers API"])
def host(request: pytest.FixtureRequest) -> str:
    if request.param == "distribution":
        found: str = request.getfixturevalue("real")
        return found
    server: OciRegistry = request.getfixturevalue("fake")
    server.lists_referrers = request.param == "with referrers API"
    return server.host


@dataclass
class Slept:
    """Pauses that were asked for and not made."""

    pauses: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


def at(
    host: str,
    what: str = "team/engines",
    *,
    login: Credentials | None = None,
    sleep: Slept | None = None,
    mount_from: tuple[str, ...] = (),
) -> Remote:
    return Remote(
        OciRef.parse(f"oci://{host}/{what}"),
        credentials=lambda _: login,
        sleep=sleep or Slept(),
        mount_from=mount_from,
    )


def push_release(source: Registry, remote: Remote, tag: str | None = None) -> Pushed:
    return push(source, ONE, remote, tag=tag, chunk_bytes=MIB)


def test_a_pushed_release_comes_back_whole_with_all_that_belongs_to_it(
    host: str, source: Registry, release: Release, tmp_path: Path
) -> None:
    repository = f"team/whole-{id(source)}"
    pushed = push_release(source, at(host, repository), "prod")
    assert pushed.engine == release.content.engine
    assert pushed.sent == pushed.blobs
    to = open_registry(f"file://{tmp_path / 'there'}", TickingClock())
    ((arrival, found),) = pull(at(host, f"{repository}@{pushed.engine}"), to, actor=SAMPLE_ACTOR)
    assert found == release
    assert arrival.step is ReleaseStep.CREATE
    assert to.releases.release(ONE) == release
    assert to.engines.referrers(pushed.engine) == source.engines.referrers(pushed.engine)
    assert to.engines.records(pushed.engine) == source.engines.records(pushed.engine)
    assert verify(to).is_whole
    ((again, _),) = pull(at(host, f"{repository}:prod"), to, actor=SAMPLE_ACTOR)
    assert (again.step, again.sent) == (ReleaseStep.KEEP, 0)


def test_a_second_push_sends_no_blob_and_attaches_nothing_twice(
    host: str, source: Registry
) -> None:
    remote = at(host, f"team/twice-{id(source)}")
    push_release(source, remote)
    again = push_release(source, remote)
    assert (again.sent, again.sent_bytes) == (0, 0)
    to = in_memory()
    pull(at(host, f"team/twice-{id(source)}@{again.engine}"), to, actor=SAMPLE_ACTOR)
    assert len(to.engines.referrers(again.engine)) == again.attached - 2


def test_a_third_party_client_pulls_and_verifies_what_was_pushed(
    host: str, source: Registry, release: Release, tmp_path: Path
) -> None:
    repository = f"team/oras-{id(source)}"
    push_release(source, at(host, repository), "v1")
    client = OrasRegistry(hostname=host, insecure=True)
    container = client.get_container(f"{host}/{repository}:v1")
    answer = client.do_request(
        f"http://{container.manifest_url()}",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    )
    assert f"sha256:{hashlib.sha256(answer.content).hexdigest()}" == str(release.content.engine)
    client.pull(target=f"{host}/{repository}:v1", outdir=str(tmp_path))
    for title, data in FILES.items():
        assert (tmp_path / title).read_bytes() == data
    client.get_manifest(container)  # validates it against the schema


def test_referrers_are_found_the_way_the_server_offers(
    fake: OciRegistry, source: Registry, release: Release
) -> None:
    engine = release.content.engine
    push_release(source, at(fake.host))
    tag = ("team/engines", f"sha256-{engine.hex}")
    assert tag not in fake.manifests
    fake.lists_referrers = False
    push_release(source, at(fake.host, "team/old"))
    kind, data = fake.manifests["team/old", tag[1]]
    assert kind == INDEX
    listed = {entry["digest"]: entry for entry in json.loads(data)["manifests"]}
    reports = source.engines.referrers(engine, REPORT_ARTIFACT)
    assert {str(link.manifest) for link in reports} <= set(listed)
    assert listed[str(reports[0].manifest)]["artifactType"] == REPORT_ARTIFACT
    assert listed[str(reports[0].manifest)]["annotations"] == reports[0].annotations


def test_the_list_of_another_writer_is_added_to_and_not_replaced(
    fake: OciRegistry, source: Registry, release: Release
) -> None:
    fake.lists_referrers = False
    engine = release.content.engine
    theirs = {"mediaType": INDEX, "digest": f"sha256:{'a' * 64}", "size": 2}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [theirs]}
    name = ("team/engines", f"sha256-{engine.hex}")
    fake.manifests[name] = (INDEX, json.dumps(index).encode())
    push_release(source, at(fake.host))
    listed = json.loads(fake.manifests[name][1])["manifests"]
    assert theirs["digest"] in {entry["digest"] for entry in listed}
    assert len(listed) > 1
    pull(at(fake.host, f"team/engines@{engine}"), in_memory(), actor=SAMPLE_ACTOR)


def test_blobs_are_mounted_from_another_repository_instead_of_sent(
    fake: OciRegistry, source: Registry
) -> None:
    push_release(source, at(fake.host, "team/first"))
    before = fake.received_bytes
    pushed = push_release(source, at(fake.host, "team/second", mount_from=("team/first",)))
    assert pushed.sent == 0
    assert fake.received_bytes - before < 100_000
    pull(at(fake.host, f"team/second@{pushed.engine}"), in_memory(), actor=SAMPLE_ACTOR)


def test_a_real_server_mounts_too(real: str, source: Registry) -> None:
    first, second = f"team/a-{id(source)}", f"team/b-{id(source)}"
    push_release(source, at(real, first))
    assert push_release(source, at(real, second, mount_from=(first,))).sent == 0


def stored(fake: OciRegistry, source: Registry, remote: Remote) -> None:
    pushed = push_release(source, remote)
    to = in_memory()
    pull(at(fake.host, f"team/engines@{pushed.engine}"), to, actor=SAMPLE_ACTOR)
    assert verify(to).is_whole


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PATCH", "/uploads/", cut_after=600_000),
        Fault("PATCH", "/uploads/", cut_after=0),
        Fault("PATCH", "/uploads/", lose_reply=True),
        Fault("PATCH", "/uploads/", times=3, cut_after=300_000),
        Fault("PATCH", "/uploads/", status=500),
        Fault("PATCH", "/uploads/", forget=True),
        Fault("PUT", "/uploads/", lose_reply=True),
        Fault("PUT", "/uploads/", cut_after=0),
        Fault("PUT", "/uploads/", status=503),
        Fault("PUT", "/manifests/", times=2, status=502),
        Fault("PUT", "/manifests/", lose_reply=True),
        Fault("HEAD", "/blobs/", times=3, status=429, headers={"Retry-After": "1"}),
        Fault("POST", "/uploads/", status=500),
    ],
    ids=str,
)
def test_a_push_goes_on_after_a_failure(fake: OciRegistry, source: Registry, fault: Fault) -> None:
    fake.faults.append(fault)
    stored(fake, source, at(fake.host))
    assert fault.times == 0


def test_an_upload_goes_on_at_the_byte_where_the_connection_broke(
    fake: OciRegistry, source: Registry
) -> None:
    fake.faults.append(Fault("PATCH", "/uploads/", cut_after=600_000))
    stored(fake, source, at(fake.host))
    # Everything else once: nothing that had arrived was sent again.
    assert fake.received_bytes < len(WEIGHTS) - 600_000 + 100_000


class Breaking(io.BytesIO):
    """A stream whose reader dies in the middle of the second chunk, once."""

    broken = False

    def read(self, size: int | None = -1) -> bytes:
        if not Breaking.broken and self.tell() > MIB + 300_000:
            Breaking.broken = True
            raise OSError("the connection broke")
        return super().read(size)


def test_an_upload_that_broke_in_a_chunk_ends_whole_on_every_server(host: str) -> None:
    Breaking.broken = False
    part = Part(digest=Digest.of(WEIGHTS), size_bytes=len(WEIGHTS))
    remote = at(host, "team/broken")
    assert BlobUpload(remote, MIB).push(part, lambda: Breaking(WEIGHTS)) is Breaking.broken is True
    assert BlobUpload(remote).push(part, lambda: Breaking(WEIGHTS)) is False


@pytest.mark.parametrize("status", [413, 416])
def test_a_request_that_is_too_long_is_cut_smaller(
    fake: OciRegistry, source: Registry, status: int
) -> None:
    fake.max_request_bytes, fake.too_long = MIB, status
    push(source, ONE, at(fake.host), chunk_bytes=2 * MIB)
    push(source, ONE, at(fake.host, "team/whole"), chunk_bytes=64 * MIB)
    assert ("team/whole", f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}") in fake.blobs


def test_a_server_that_knows_no_chunks_gets_blobs_whole(
    fake: OciRegistry, source: Registry
) -> None:
    fake.chunks = False
    stored(fake, source, at(fake.host))


def test_limits_of_known_registries_are_kept() -> None:
    assert chunk_bytes_for("ghcr.io") == 4 * MIB
    assert chunk_bytes_for("123456789012.dkr.ecr.eu-central-1.amazonaws.com") == 20_971_520
    assert chunk_bytes_for("ghcr.io.example.com") > 20_971_520


def test_the_wait_that_a_server_asks_for_is_kept(fake: OciRegistry, source: Registry) -> None:
    slept = Slept()
    fake.faults.append(Fault("HEAD", "/blobs/", status=429, headers={"Retry-After": "17"}))
    push_release(source, at(fake.host, sleep=slept))
    assert 17.0 in slept.pauses


def test_a_server_that_stays_down_is_given_up_with_a_next_step(
    fake: OciRegistry, source: Registry
) -> None:
    fake.faults.append(Fault("HEAD", "/blobs/", times=1000, status=503))
    with pytest.raises(Unavailable) as refused:
        push_release(source, at(fake.host))
    assert refused.value.name == "oci-unreachable"
    assert not fake.manifests


def test_the_tag_is_written_last(fake: OciRegistry, source: Registry) -> None:
    push_release(source, at(fake.host), "prod")
    writes = [path for method, path in fake.requests if method == "PUT"]
    assert writes[-1].endswith("/manifests/prod")


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


WEIGHTS_BLOB = f"/blobs/sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"


@pytest.mark.parametrize(
    ("where", "spoil"),
    [
        ("/manifests/", flip),
        ("/manifests/", lambda data: b"{}"),
        ("/manifests/", lambda data: b" " * (5 << 20)),
        ("/blobs/", flip),
        (WEIGHTS_BLOB, flip),
        (WEIGHTS_BLOB, lambda data: data + b"x"),
        ("/referrers/", lambda data: b"["),
        ("/referrers/", lambda data: b"[" * 100_000),
        ("/referrers/", lambda data: b'{"manifests": 7}'),
    ],
)
def test_bytes_that_a_server_lies_about_never_become_visible(
    fake: OciRegistry, source: Registry, where: str, spoil: object
) -> None:
    pushed = push_release(source, at(fake.host))
    fake.faults.append(Fault("GET", where, times=1000, spoil=spoil))  # type: ignore[arg-type]
    to = in_memory()
    with pytest.raises(IntegrityError):
        pull(at(fake.host, f"team/engines@{pushed.engine}"), to, actor=SAMPLE_ACTOR)
    assert not to.engines.is_recorded(pushed.engine)
    assert to.releases.products() == []


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_goes_on_where_it_broke(
    fake: OciRegistry, source: Registry, tmp_path: Path, ranges: bool
) -> None:
    fake.ranges = ranges
    push_release(source, at(fake.host))
    fake.faults.append(Fault("GET", WEIGHTS_BLOB, times=2, send_only=1_500_000))
    engine = source.engines.engine(source.releases.release(ONE).content.engine)
    weights = next(layer for layer in engine.manifest.layers if layer.size == len(WEIGHTS))
    fetch_blob(at(fake.host), weights.digest, weights.size, tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == WEIGHTS


def test_what_no_enginectl_pushed_is_refused(fake: OciRegistry, source: Registry) -> None:
    pushed = push_release(source, at(fake.host))
    fake.faults.append(Fault("GET", "/referrers/", times=9, status=404))
    with pytest.raises(NotFound) as refused:
        pull(at(fake.host, f"team/engines@{pushed.engine}"), in_memory(), actor=SAMPLE_ACTOR)
    assert refused.value.name == "record-missing"


def test_a_missing_engine_is_not_found(host: str) -> None:
    with pytest.raises(NotFound):
        pull(at(host, f"team/none@sha256:{'0' * 64}"), in_memory(), actor=SAMPLE_ACTOR)
    with pytest.raises(NotFound):
        pull(at(host, "team/none:prod"), in_memory(), actor=SAMPLE_ACTOR)
    with pytest.raises(InvalidInput):
        pull(at(host, "team/none"), in_memory(), actor=SAMPLE_ACTOR)


def test_a_login_buys_a_token_and_is_shown_to_nobody_else(
    fake: OciRegistry, source: Registry
) -> None:
    fake.login = ("robot", "a secret word")
    remote = at(fake.host, login=Credentials("robot", "a secret word"))
    push_release(source, remote)
    assert "secret" not in repr(remote)
    basic = {
        path.partition("?")[0]
        for (_, path), said in zip(fake.requests, fake.seen, strict=True)
        if said.startswith("Basic")
    }
    assert basic == {"/token"}
    assert set(fake.seen) >= {"", "Bearer good-token"}


@pytest.mark.parametrize("login", [None, Credentials("robot", "wrong word")])
def test_a_login_that_is_refused_is_never_repeated(
    fake: OciRegistry, source: Registry, login: Credentials | None
) -> None:
    fake.login = ("robot", "a secret word")
    with pytest.raises(EngineCIError) as refused:
        push_release(source, at(fake.host, login=login))
    assert refused.value.name == "oci-access-denied"
    assert "word" not in str(refused.value.message) + refused.value.hint
