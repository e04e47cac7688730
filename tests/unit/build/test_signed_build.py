"""Builds that are signed: what is signed, when, and what is never signed."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from engine_pipeline.build.build import build
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.cli.wiring import utc_now
from engine_pipeline.progress import Silent
from engine_pipeline.trust.bundle import BUNDLE
from engine_pipeline.trust.ed25519 import SigningKey, new_key, read_signing_key
from engine_pipeline.trust.keyless import Instance as SigstoreInstance
from engine_pipeline.trust.keyless_signing import KeylessSigner
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.signatures import ENVELOPE_FILE, is_signed_with
from engine_registry.attestation import read_statement
from engine_registry.dsse import ENVELOPE, read_envelope
from engine_registry.errors import Unavailable
from engine_registry.manifest import PROVENANCE_ARTIFACT
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.faults import FaultPlan, SimulatedCrash, faulty
from tests.servers.sigstore import Instance, serving
from tests.unit.build.test_build import ALICE, LOCK_BYTES, NOON, Shop


@dataclass
class SigningShop(Shop):
    """A shop that signs, if it has a key."""

    key: SigningKey | KeylessSigner | None = None

    def build(self, lock, registry=None):
        return build(
            lock,
            LOCK_BYTES,
            lock_path=self.cache.root / "toy.lock.json",
            registry=registry or self.registry,
            runner=self.runner,
            cache=self.cache,
            backend=self.backend,
            machine=self.machine,
            progress=Silent(),
            actor=ALICE,
            clock=lambda: NOON,
            signing_key=self.key,
        )

    @property
    def registry_founded(self) -> bool:
        return (self.cache.root.parent / "registry" / "registry.json").exists()

    def is_signed(self, engine, key) -> bool:
        return is_signed_with(self.registry, engine, Role.BUILD, engine, key.public)


@pytest.fixture
def make_key(tmp_path):
    def make(name: str) -> SigningKey:
        path = tmp_path / name
        path.write_bytes(new_key()[0])
        path.chmod(0o600)
        return read_signing_key(path)

    return make


@pytest.fixture
def shop(tmp_path):
    return SigningShop(
        registry=open_registry(str(tmp_path / "registry"), lambda: NOON),
        cache=StepCache(tmp_path / "cache"),
    )


def test_a_build_without_a_key_attaches_no_envelope(shop, make_lock):
    engine = shop.build(make_lock()).engine
    assert shop.registry.engines.referrers(engine, ENVELOPE) == []


def test_what_is_signed_is_the_provenance_as_it_is_stored(shop, make_lock, make_key):
    shop.key = make_key("ci")
    engine = shop.build(make_lock()).engine
    (link,) = shop.registry.engines.referrers(engine, ENVELOPE)
    data = shop.registry.engines.read_attachment(link.manifest)[ENVELOPE_FILE]
    (stored,) = shop.registry.engines.referrers(engine, PROVENANCE_ARTIFACT)
    provenance = shop.registry.engines.read_attachment(stored.manifest)["provenance.json"]
    assert read_envelope(data).content == provenance
    assert read_statement(provenance, engine)
    assert shop.is_signed(engine, shop.key)


def test_an_engine_that_the_key_has_not_signed_is_built_and_not_reused(shop, make_lock, make_key):
    unsigned = shop.build(make_lock())
    shop.key = make_key("ci")
    signed = shop.build(make_lock())
    assert (signed.reused, signed.engine) == (None, unsigned.engine)
    assert shop.is_signed(signed.engine, shop.key)
    assert shop.build(make_lock()).reused == "engine"
    shop.key = make_key("other")
    assert shop.build(make_lock()).reused is None


def test_an_engine_that_this_identity_has_not_signed_is_built_and_not_reused(shop, make_lock):
    with serving(Instance()) as services:
        config = json.dumps(services.trust_config())

        def workflow(ref: str) -> KeylessSigner:
            token = services.token(job_workflow_ref=f"org/engines/.github/workflows/e.yml@{ref}")
            instance = SigstoreInstance(config, "the stand-in")
            return KeylessSigner(instance, {"SIGSTORE_ID_TOKEN": token}, utc_now)

        unsigned = shop.build(make_lock())
        shop.key = workflow("refs/heads/main")
        signed = shop.build(make_lock())
        assert (signed.reused, signed.engine) == (None, unsigned.engine)
        assert shop.is_signed(signed.engine, shop.key)
        assert len(shop.registry.engines.referrers(signed.engine, BUNDLE)) == 1
        shop.key = workflow("refs/heads/main")  # another job of the same workflow
        assert shop.build(make_lock()).reused == "engine"
        shop.key = workflow("refs/heads/feature")
        assert shop.build(make_lock()).reused is None


def test_a_build_whose_signature_no_log_takes_records_nothing_and_is_finished_later(
    shop, make_lock
):
    with serving(Instance()) as services:
        instance = SigstoreInstance(json.dumps(services.trust_config()), "the stand-in")
        environment = {"SIGSTORE_ID_TOKEN": services.token()}
        shop.key = KeylessSigner(instance, environment, utc_now)
        services.out_of_order["/api/v1/log/entries"] = 503
        with pytest.raises(Unavailable):
            shop.build(make_lock())
        assert list(shop.registry.engines.all_engines()) == []
        services.out_of_order.clear()
        built = shop.build(make_lock())
        assert all(step.reused for step in built.steps)
        assert shop.is_signed(built.engine, shop.key)


def test_an_engine_planted_under_our_build_key_is_never_signed(shop, make_lock, make_key, tmp_path):
    honest = shop.build(make_lock())
    shop.backend.flag = "planted"  # same inputs in the lock, other bytes
    shop.cache = StepCache(tmp_path / "other-cache")
    planted = SigningShop(
        registry=open_registry(str(tmp_path / "victim"), lambda: NOON),
        cache=shop.cache,
        backend=shop.backend,
    )
    forged = planted.build(make_lock())
    assert forged.engine != honest.engine
    assert forged.build_key == honest.build_key
    victim = SigningShop(
        registry=planted.registry, cache=StepCache(tmp_path / "cache"), key=make_key("ci")
    )
    built = victim.build(make_lock())
    assert built.engine == honest.engine
    assert not victim.is_signed(forged.engine, victim.key)


def test_a_signed_build_killed_at_any_write_is_signed_once_it_is_recorded(
    shop, make_lock, make_key
):
    shop.key, lock = make_key("ci"), make_lock()
    stores = shop.registry.stores
    for number in range(1, 200):
        wrapped = Registry(faulty(stores, FaultPlan(at=number)), lambda: NOON)
        try:
            engine = shop.build(lock, wrapped).engine
        except SimulatedCrash:
            if not shop.registry_founded:
                continue
            for found in shop.registry.engines.all_engines():
                assert shop.is_signed(found, shop.key)
            continue
        assert number > 5
        assert shop.is_signed(engine, shop.key)
        return
    pytest.fail("never finished")
