"""Canonical JSON and the envelope in which every named document is stored.

A stored document is one line of valid JSON that carries the digest of its own body:

    {"digest":"sha256:<64 hex>","document":<canonical JSON of the body>}

The prefix has a fixed length, so the body can be cut out and checked with standard tools
(docs/registry-format.md), one atomic write stores body and digest together, and a flipped byte
anywhere in the file is found. Canonical JSON: UTF-8, keys sorted by code point, no white space,
no NaN or infinity, shortest float form that reads back to the same number.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError

_HEAD = b'{"digest":"'
_MIDDLE = b'","document":'
_TAIL = b"}\n"
_DIGEST_LENGTH = len("sha256:") + 64
BODY_OFFSET = len(_HEAD) + _DIGEST_LENGTH + len(_MIDDLE)


class Value(BaseModel):
    """Frozen base for everything that crosses a boundary; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Document(Value):
    """Base of every stored document."""

    schema_version: Literal[1] = 1

    @property
    def digest(self) -> Digest:
        """The digest of this document's canonical JSON: the one in its envelope."""
        return Digest.of(canonical_json(self))


D = TypeVar("D", bound=Document)


def canonical_json(value: BaseModel | dict[str, Any] | list[Any]) -> bytes:
    """The canonical JSON bytes of a model or of plain JSON values; raises ValueError on NaN."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def seal(document: Document) -> bytes:
    """The bytes to store for `document`: its envelope."""
    body = canonical_json(document)
    return _HEAD + str(Digest.of(body)).encode() + _MIDDLE + body + _TAIL


def unseal_body(data: bytes, name: str) -> tuple[bytes, Digest]:
    """Cut the body out of an envelope and check it.

    Raises:
        IntegrityError: the envelope is malformed or the body does not match its digest.
    """
    framed = (
        len(data) >= BODY_OFFSET + len(_TAIL)
        and data.startswith(_HEAD)
        and data[BODY_OFFSET - len(_MIDDLE) : BODY_OFFSET] == _MIDDLE
        and data.endswith(_TAIL)
    )
    body = data[BODY_OFFSET : -len(_TAIL)] if framed else b""
    stated = data[len(_HEAD) : len(_HEAD) + _DIGEST_LENGTH] if framed else b""
    actual = Digest.of(body)
    if not framed or stated != str(actual).encode():
        what = (
            f"says {stated.decode(errors='replace')}, holds {actual}" if framed else "no envelope"
        )
        raise IntegrityError(
            f"{name}: {what}",
            hint="run `enginectl verify` to list every damaged file",
            reference="document-damaged",
        )
    return body, actual


def unseal(data: bytes, kind: type[D], name: str) -> tuple[D, Digest]:
    """Read a stored document of type `kind` and its digest.

    Raises:
        IntegrityError: as `unseal_body`, or the body is not a document of that kind.
    """
    body, digest = unseal_body(data, name)
    try:
        return kind.model_validate_json(body), digest
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise IntegrityError(
            f"{name}: not a {kind.__name__}: {path or 'document'}: {first['msg']}",
            hint="this registry may come from a newer enginectl; compare `enginectl --version`",
            reference="document-not-readable",
        ) from error
