"""Keys, and an engine with provenance in a registry in memory."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_pipeline.trust.ed25519 import SigningKey, new_key, read_signing_key
from engine_pipeline.trust.keyless import Instance as SigstoreInstance
from engine_pipeline.trust.policy import Role, TrustedIdentity, TrustedKey
from engine_pipeline.trust.standing import KnownIdentity, KnownKey
from engine_registry.attestation import BuildStatement, provenance_statement
from engine_registry.backends.memory import memory_stores
from engine_registry.engines import StoredEngine
from engine_registry.registry import Registry
from engine_registry.testing.samples import TickingClock, sample_draft
from tests.servers.sigstore import IDENTITY, Instance
from tests.servers.sigstore_ca import GITHUB

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
BUILD = BuildStatement(
    build_type="urn:engine-ci:build:1",
    external_parameters={"spec": "tiny"},
    materials=(),
    builder_id="urn:engine-ci:builder:local",
    invocation_id="run-1",
    started_at=AT,
    finished_at=AT,
)


@pytest.fixture
def make_key(tmp_path: Path):
    """A new private key each time."""

    def make(name: str = "key") -> SigningKey:
        path = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(new_key()[0])
        path.chmod(0o600)
        return read_signing_key(path)

    return make


@pytest.fixture
def registry() -> Registry:
    clock = TickingClock()
    return Registry(memory_stores(clock), clock)


@pytest.fixture
def make_engine(registry: Registry, tmp_path: Path):
    def make(name: str) -> StoredEngine:
        draft = sample_draft(tmp_path / f"files-{name}", name)
        return registry.engines.put_engine(
            dataclasses.replace(
                draft, provenance=lambda engine: provenance_statement(engine, "tiny/cpu", BUILD)
            )
        )

    return make


def known(key: SigningKey, name: str = "ci", **fields) -> KnownKey:
    """The key as channels.yaml might name it."""
    entry = TrustedKey(name=name, public_key=key.public.pem, **{"may_sign": tuple(Role), **fields})
    return KnownKey(entry=entry, public=key.public)


def identified(instance: Instance, name: str = "ci", **fields) -> KnownIdentity:
    """The identity of the stand-in's workflow as channels.yaml might name it."""
    entry = TrustedIdentity(
        name=name, **{"may_sign": tuple(Role), "identity": IDENTITY, "issuer": GITHUB, **fields}
    )
    verifier = SigstoreInstance(json.dumps(instance.trust_config()), "the stand-in")
    return KnownIdentity(entry=entry, verifier=verifier)


@pytest.fixture(scope="session")
def sigstore() -> Instance:
    """A sigstore instance that signs by itself, without a port."""
    return Instance()
