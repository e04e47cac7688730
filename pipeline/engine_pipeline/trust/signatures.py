"""Signatures attached to an engine: read and judged, made and attached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.trust.bundle import (
    BUNDLE,
    MAX_BUNDLE_BYTES,
    bundle_attachment,
    read_bundle_envelope,
)
from engine_pipeline.trust.ed25519 import SigningKey
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.signers import known_as, known_identity
from engine_pipeline.trust.standing import (
    KnownIdentity,
    KnownKey,
    Signatures,
    Standing,
    judge_bundle,
    judge_envelope,
)
from engine_pipeline.trust.statements import gate_statement, release_statement
from engine_registry.attachments import Attachment
from engine_registry.attestation import read_statement
from engine_registry.dsse import (
    ENVELOPE,
    IN_TOTO,
    MAX_ENVELOPE_BYTES,
    Envelope,
    Signature,
    signing_input,
)
from engine_registry.errors import NotFound
from engine_registry.manifest import PROVENANCE_ARTIFACT, REPORT_ARTIFACT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine_pipeline.trust.keyless_signing import KeylessSigner
    from engine_pipeline.trust.signers import Public, Signer
    from engine_pipeline.trust.standing import KnownSigner, Seen
    from engine_registry.digest import Digest
    from engine_registry.record import Release
    from engine_registry.registry import Registry

ENVELOPE_FILE = "envelope.dsse.json"
# Annotations of an attached envelope: for listings only, no rule looks at them.
ROLE = "org.engine-ci.signature.role"
KEY_ID = "org.engine-ci.signature.key-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A signature that is attached.

    Attributes:
        is_new: it was not attached before.
    """

    role: Role
    what: str
    envelope: Digest
    is_new: bool


def read_signatures(registry: Registry, engine: Digest, keys: Sequence[KnownSigner]) -> Signatures:
    """Every signature attached to an engine, judged under these keys and identities.

    Raises:
        NotFound, IntegrityError: bytes of something attached are missing or damaged.
    """
    own = [key for key in keys if isinstance(key, KnownKey)]
    identities = [key for key in keys if isinstance(key, KnownIdentity)]
    seen: list[Seen] = []
    for attached, data in _attached(registry, engine, ENVELOPE, MAX_ENVELOPE_BYTES):
        seen += judge_envelope(data, attached, engine, own)
    for attached, data in _attached(registry, engine, BUNDLE, MAX_BUNDLE_BYTES):
        seen += judge_bundle(data, attached, engine, identities)
    signers = {
        role: tuple(
            key.entry.name
            for key in keys
            if role in key.entry.may_sign and key.entry.revoked_at is None
        )
        for role in Role
    }
    return Signatures(seen=tuple(seen), signers=signers)


def _attached(
    registry: Registry, engine: Digest, artifact_type: str, limit_bytes: int
) -> Iterator[tuple[Digest, bytes]]:
    """Attached manifest and content of each signature of a kind; nothing of what is too long."""
    for link in registry.engines.referrers(engine, artifact_type):
        for layer in registry.engines.manifest(link.manifest).layers:
            too_long = layer.size > limit_bytes
            data = b"" if too_long else registry.engines.read_blob(layer.digest, layer.size)
            yield link.manifest, data


def sealed(statement: bytes, role: Role, signer: Signer) -> Attachment:
    """A statement with one signature, to be attached to what it is about.

    With a key, the same statement gives the same bytes, so signing again attaches nothing new.
    """
    if not isinstance(signer, SigningKey):
        return bundle_attachment(signer.bundle(statement), statement, signer.clock())
    signature = Signature(
        key_id=signer.public.key_id, value=signer.sign(signing_input(IN_TOTO, statement))
    )
    envelope = Envelope(content=statement, signatures=(signature,))
    return Attachment(
        artifact_type=ENVELOPE,
        files=((ENVELOPE_FILE, envelope.to_bytes(), ENVELOPE),),
        annotations={ROLE: str(role), KEY_ID: signer.public.key_id},
    )


def sign_builds(registry: Registry, engine: Digest, key: Signer) -> list[Signed]:
    """Sign every provenance statement of an engine.

    Raises:
        NotFound: it has none.
        IntegrityError: one is about something else, or no SLSA provenance.
    """
    links = registry.engines.referrers(engine, PROVENANCE_ARTIFACT)
    if not links:
        raise NotFound(
            f"engine {engine.short} has no provenance to sign",
            hint="build it again with `enginectl build`, which writes its provenance",
            reference="provenance-missing",
        )
    found = []
    for link in links:
        for statement in registry.engines.read_attachment(link.manifest).values():
            read_statement(statement, engine)
            what = f"build of engine {engine.short}"
            found.append(_attach(registry, engine, statement, Role.BUILD, what, key))
    return found


def sign_report(registry: Registry, engine: Digest, report: Digest, key: Signer) -> Signed:
    """Sign one report that is attached to an engine.

    Raises:
        NotFound: it is not.
    """
    links = registry.engines.referrers(engine, REPORT_ARTIFACT)
    link = next((link for link in links if link.manifest == report), None)
    if link is None:
        raise NotFound(
            f"engine {engine.short} has no report {report.short}",
            hint=f"`enginectl show {engine.short}` lists its reports",
            reference="report-missing",
        )
    registry.engines.read_attachment(report)  # never sign what is not whole
    statement = gate_statement(engine, report, link.annotations)
    return _attach(registry, engine, statement, Role.GATE, f"report {report.short}", key)


def sign_reports(registry: Registry, engine: Digest, key: Signer) -> list[Signed]:
    """Sign every report that is attached to an engine."""
    links = registry.engines.referrers(engine, REPORT_ARTIFACT)
    return [sign_report(registry, engine, link.manifest, key) for link in links]


def sign_release(registry: Registry, release: Release, key: Signer) -> Signed:
    """Sign a release; the envelope is attached to its engine."""
    engine = release.content.engine
    what = f"release {release.name}"
    return _attach(registry, engine, release_statement(release), Role.RELEASE, what, key)


def is_signed_with(
    registry: Registry, engine: Digest, role: Role, about: Digest, key: Public
) -> bool:
    """Whether something about an engine carries a good signature by this very signer.

    What is reused is never signed by whoever reuses it, only by who made it; so a key or identity
    that is to vouch for it must have signed it already.
    """
    return any(
        seen.standing is Standing.GOOD
        and seen.claim is not None
        and (seen.claim.role, seen.claim.about) == (role, about)
        for seen in read_signatures(registry, engine, (known_as(key, role),)).seen
    )


def _attach(
    registry: Registry, engine: Digest, statement: bytes, role: Role, what: str, key: Signer
) -> Signed:
    envelope = (
        None
        if isinstance(key, SigningKey)
        else _attached_before(registry, engine, statement, role, key)
    )
    if envelope is not None:
        return Signed(role=role, what=what, envelope=envelope, is_new=False)
    before = {link.manifest for link in registry.engines.referrers(engine)}
    attachment = sealed(statement, role, key)
    envelope = registry.engines.attach(
        engine, attachment.artifact_type, attachment.files, attachment.annotations
    )
    return Signed(role=role, what=what, envelope=envelope, is_new=envelope not in before)


def _attached_before(
    registry: Registry, engine: Digest, statement: bytes, role: Role, key: KeylessSigner
) -> Digest | None:
    """The good bundle with this very statement by this very identity, if there is one."""
    known = known_identity(key.public, role)
    for attached, data in _attached(registry, engine, BUNDLE, MAX_BUNDLE_BYTES):
        seen = judge_bundle(data, attached, engine, (known,))
        if not seen or seen[0].standing is not Standing.GOOD:
            continue
        envelope = read_bundle_envelope(data)
        if envelope is not None and envelope.content == statement:
            return attached
    return None
