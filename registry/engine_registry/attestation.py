"""Statements as in-toto Statement v1, and provenance of a build as one with an SLSA v1 predicate.

Pure, and unsigned: a signature is an envelope (`dsse`) around the same bytes.

Sources: in-toto attestation spec v1 (Statement); slsa.dev/spec/v1.0/provenance. Unknown fields of
the predicate are allowed by its rules; what a verifier must know goes into `externalParameters`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError, InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One thing a build read: where it is from and what it was.

    Attributes:
        uri: e.g. `hf://org/repo@<commit>/model.safetensors`, `docker://image`.
        digests: algorithm → hex, e.g. {"sha256": "..."} or {"gitCommit": "..."}.
    """

    uri: str
    digests: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStatement:
    """What is said of one build.

    Attributes:
        build_type: URI of the kind of build; its rules give the parameters their meaning.
        external_parameters: what the user chose: the spec, field by field.
        internal_parameters: what the pipeline chose.
        materials: every input that was read.
        builder_id: URI of the builder and of its trust boundary.
        builder_versions: versions of its parts.
        invocation_id: one per run.
        byproducts: logs and the like, by name.
    """

    build_type: str
    external_parameters: dict[str, Any]
    materials: tuple[Material, ...]
    builder_id: str
    invocation_id: str
    started_at: datetime
    finished_at: datetime
    internal_parameters: dict[str, Any] = field(default_factory=dict)
    builder_versions: dict[str, str] = field(default_factory=dict)
    byproducts: dict[str, Digest] = field(default_factory=dict)


def provenance_statement(engine: Digest, name: str, build: BuildStatement) -> bytes:
    """The statement that `build` made the engine with this manifest digest; canonical JSON.

    Args:
        engine: the subject.
        name: what the subject is called, e.g. `smollm2-135m-instruct/cpu-x86-64-v3`.
        build: what is said of it.
    """
    return statement_bytes(
        name,
        engine,
        PREDICATE,
        {
            "buildDefinition": {
                "buildType": build.build_type,
                "externalParameters": build.external_parameters,
                "internalParameters": build.internal_parameters,
                "resolvedDependencies": [
                    {"uri": material.uri, "digest": material.digests}
                    for material in build.materials
                ],
            },
            "runDetails": {
                "builder": {"id": build.builder_id, "version": build.builder_versions},
                "metadata": {
                    "invocationId": build.invocation_id,
                    "startedOn": _rfc3339(build.started_at),
                    "finishedOn": _rfc3339(build.finished_at),
                },
                "byproducts": [
                    {"name": title, "digest": {"sha256": digest.hex}}
                    for title, digest in sorted(build.byproducts.items())
                ],
            },
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What somebody says of one thing.

    Attributes:
        name: what the thing is called.
        subject: its digest, which alone says what it is.
        predicate_type: URI that gives the predicate its meaning.
    """

    name: str
    subject: Digest
    predicate_type: str
    predicate: dict[str, Any]


def statement_bytes(
    name: str, subject: Digest, predicate_type: str, predicate: dict[str, Any]
) -> bytes:
    """An in-toto Statement v1 about one subject, as canonical JSON."""
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": subject.hex}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def parse_statement(data: bytes) -> Statement:
    """A statement about exactly one subject with a SHA-256 digest, of any predicate type.

    Raises:
        IntegrityError: `statement-unreadable`.
    """
    try:
        statement = json.loads(data)
        (subject,) = statement["subject"]
        found = Statement(
            name=str(subject.get("name", ""))[:400],
            subject=Digest(subject["digest"]["sha256"]),
            predicate_type=statement["predicateType"],
            predicate=statement["predicate"],
        )
        kind = statement["_type"]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        InvalidInput,
    ) as error:
        raise _no_statement(f"{type(error).__name__}: {str(error)[:120]}") from error
    fits = isinstance(found.predicate_type, str) and isinstance(found.predicate, dict)
    if kind != STATEMENT or not fits:
        raise _no_statement(f"type {str(kind)[:80]!r}, want {STATEMENT!r} with a predicate")
    return found


def read_statement(data: bytes, engine: Digest) -> dict[str, Any]:
    """The SLSA predicate of a statement about `engine`.

    Raises:
        IntegrityError: no such statement, of another type, or about something else.
    """
    try:
        statement = json.loads(data)
        kinds = (statement["_type"], statement["predicateType"])
        subjects = [subject["digest"]["sha256"] for subject in statement["subject"]]
        predicate = statement["predicate"]
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(engine, f"no in-toto statement: {error!r}") from error
    if kinds != (STATEMENT, PREDICATE) or not isinstance(predicate, dict):
        raise _unusable(engine, f"types are {kinds}, want {(STATEMENT, PREDICATE)}")
    if subjects != [engine.hex]:
        raise _unusable(engine, f"is about {subjects}, want {engine.hex}")
    return predicate


def _rfc3339(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _no_statement(what: str) -> IntegrityError:
    return IntegrityError(
        f"in-toto statement: {what}",
        hint="sign again: `enginectl sign`",
        reference="statement-unreadable",
    )


def _unusable(engine: Digest, what: str) -> IntegrityError:
    return IntegrityError(
        f"provenance of engine {engine.short}: {what}",
        hint=f"run `enginectl inspect {engine}` to see everything attached to it",
        reference="provenance-unusable",
    )
