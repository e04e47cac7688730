"""What is signed: statements about builds, gate reports and releases, as bytes and back. Pure.

A build's statement is its provenance, byte for byte as it is stored. The other two name by digest
what they vouch for, so that an envelope stays small however long a report is.

    role     subject             predicate type                  vouches for
    build    the engine          https://slsa.dev/provenance/v1  the subject
    gate     the engine          urn:engine-ci:gate-report:1     the attached report it names
    release  the release         urn:engine-ci:release:1         the subject
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.trust.policy import Role
from engine_registry.attestation import PREDICATE, parse_statement, statement_bytes
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, InvalidInput

if TYPE_CHECKING:
    from engine_registry.attestation import Statement
    from engine_registry.record import Release

GATE_REPORT = "urn:engine-ci:gate-report:1"
RELEASE = "urn:engine-ci:release:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a statement vouches for.

    Attributes:
        about: engine, attached report or release document, by role.
        engine: the engine it has to be attached to.
    """

    role: Role
    about: Digest
    engine: Digest


def gate_statement(engine: Digest, report: Digest, listing: dict[str, str]) -> bytes:
    """That `report`, a manifest attached to `engine`, is what a gate found.

    Args:
        engine: manifest digest of the engine.
        report: manifest digest of the attached report, which pins its content and its listing.
        listing: annotations of the report, for whoever reads the statement alone.
    """
    predicate: dict[str, Any] = {"report": {"sha256": report.hex}, "listing": listing}
    return statement_bytes(f"engine {engine.short}", engine, GATE_REPORT, predicate)


def release_statement(release: Release) -> bytes:
    """That a release is what its document says."""
    predicate = {
        "engine": {"sha256": release.content.engine.hex},
        "release": release.model_dump(mode="json"),
    }
    return statement_bytes(release.name, release.digest, RELEASE, predicate)


def read_claim(data: bytes) -> Claim | None:
    """What a statement vouches for; None for a kind of statement that means nothing here.

    Raises:
        IntegrityError: no statement (`statement-unreadable`).
    """
    statement = parse_statement(data)
    match statement.predicate_type:
        case t if t == PREDICATE:
            return Claim(role=Role.BUILD, about=statement.subject, engine=statement.subject)
        case t if t == GATE_REPORT:
            about = _digest(statement, "report")
            return Claim(role=Role.GATE, about=about, engine=statement.subject)
        case t if t == RELEASE:
            engine = _digest(statement, "engine")
            return Claim(role=Role.RELEASE, about=statement.subject, engine=engine)
        case _:
            return None


def _digest(statement: Statement, name: str) -> Digest:
    try:
        return Digest(statement.predicate[name]["sha256"])
    except (KeyError, TypeError, InvalidInput) as error:
        raise IntegrityError(
            f"statement {statement.predicate_type}: no SHA-256 digest in {name!r}",
            hint="sign again: `enginectl sign`",
            reference="statement-unreadable",
        ) from error
