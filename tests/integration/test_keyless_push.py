"""A keyless signature, pushed, is found and verified by who knows nothing of engine-ci."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.verify import Verifier, policy

from engine_pipeline.trust.bundle import bundle_attachment
from engine_registry.attestation import provenance_statement
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.oci.push import push
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry
from engine_registry.testing.samples import (
    SAMPLE_PRODUCT,
    TickingClock,
    sample_draft,
    sample_release,
)
from tests.servers.distribution import distribution
from tests.servers.oci_registry import INDEX, OciRegistry
from tests.servers.sigstore import IDENTITY, Instance
from tests.servers.sigstore_ca import GITHUB
from tests.unit.trust.conftest import BUILD

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SIGNED_AT = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(params=["distribution", "with referrers API"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "distribution":
        with distribution() as real:
            yield real
        return
    server = OciRegistry()
    server.lists_referrers = True
    yield server.host
    server.close()


def get(host: str, path: str) -> bytes:
    return fetch(f"http://{host}/v2/team/engines/{path}")[0]


def fetch(url: str) -> tuple[bytes, str | None]:
    """What lies there, and the address of the next page."""
    request = urllib.request.Request(url, headers={"Accept": f"{INDEX}, {MANIFEST}"})
    with urllib.request.urlopen(request) as answer:
        target = re.match(r"<([^>]+)>", answer.headers.get("Link", ""))
        return answer.read(), target and urllib.parse.urljoin(url, target[1])


def referrers(host: str, engine: Digest) -> list[dict[str, Any]]:
    """What is attached, by the API or else by the tag that stands in for it."""
    listed: list[dict[str, Any]] = []
    page: str | None = f"http://{host}/v2/team/engines/referrers/{engine}"
    try:
        while page is not None:
            data, page = fetch(page)
            listed += json.loads(data)["manifests"]
    except urllib.error.HTTPError:
        index = json.loads(get(host, f"manifests/{str(engine).replace(':', '-')}"))
        return list(index["manifests"])
    return listed


def test_another_client_finds_and_verifies_the_signature_of_a_pushed_engine(
    host: str, tmp_path: Path
) -> None:
    clock, sigstore = TickingClock(), Instance()
    registry = Registry(memory_stores(clock), clock)
    draft = sample_draft(tmp_path / "files", "one")
    engine = registry.engines.put_engine(
        dataclasses.replace(draft, provenance=lambda e: provenance_statement(e, "tiny/cpu", BUILD))
    )
    statement = provenance_statement(engine.digest, "tiny/cpu", BUILD)
    signed = json.dumps(sigstore.bundle(statement, SIGNED_AT)).encode()
    attachment = bundle_attachment(signed, statement, SIGNED_AT)
    registry.engines.attach(
        engine.digest, attachment.artifact_type, attachment.files, attachment.annotations
    )
    sample_release(registry, engine)
    remote = Remote(OciRef.parse(f"oci://{host}/team/engines"), credentials=lambda _: None)
    push(registry, ReleaseRef(SAMPLE_PRODUCT, 1), remote, tag=None)

    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    (found,) = [one for one in referrers(host, engine.digest) if one["artifactType"] == kind]
    manifest = json.loads(get(host, f"manifests/{found['digest']}"))
    predicate = manifest["annotations"]["dev.sigstore.bundle.predicateType"]
    assert predicate == "https://slsa.dev/provenance/v1"
    (layer,) = manifest["layers"]
    bundle = Bundle.from_json(get(host, f"blobs/{layer['digest']}"))
    trust = ClientTrustConfig.from_json(json.dumps(sigstore.trust_config()))
    wanted = policy.Identity(identity=IDENTITY, issuer=GITHUB)
    _, content = Verifier(trusted_root=trust.trusted_root).verify_dsse(bundle, wanted)
    (subject,) = json.loads(content)["subject"]
    assert subject["digest"]["sha256"] == engine.digest.hex
