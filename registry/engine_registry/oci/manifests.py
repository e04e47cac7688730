"""Manifests of a repository, and which of them are attached to which.

Servers differ: some list referrers themselves, on others the client keeps the list under a tag.
Which it is, the server says: a pushed manifest with a subject is answered with `OCI-Subject` by
those that list.

Source: OCI distribution-spec 1.1, "Pushing manifests with subject", "Listing referrers",
"Referrers tag schema".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError, NotFound, Unavailable
from engine_registry.manifest import MANIFEST, Descriptor
from engine_registry.oci.session import ATTEMPTS
from engine_registry.transfer_cargo import MAX_ATTACHED, MAX_MANIFEST_BYTES

if TYPE_CHECKING:
    import requests

    from engine_registry.oci.session import Remote

_INDEX = "application/vnd.oci.image.index.v1+json"
_MAX_PAGES = 1_000


class Manifests:
    """Manifests of one repository."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._lists: bool | None = None

    def digest_of_tag(self, tag: str) -> Digest:
        """What a tag names now. Raises NotFound."""
        return Digest.of(self._get(tag, MANIFEST))

    def get(self, digest: Digest) -> bytes:
        """A manifest's bytes, checked.

        Raises:
            NotFound: it is not there.
            IntegrityError: other bytes arrived.
        """
        data = self._get(str(digest), MANIFEST)
        if Digest.of(data) != digest:
            raise IntegrityError(
                f"manifest {digest}: {self._remote.ref.host} sent bytes with digest "
                f"{Digest.of(data)}",
                hint="the copy in that registry is damaged, or something changes bytes on the way",
                reference="manifest-damaged",
            )
        return data

    def put(self, data: bytes, tag: str | None = None) -> bool:
        """Store a manifest under its digest, or a tag; whether the server lists it by subject."""
        answer = self._remote.request(
            "PUT",
            f"manifests/{tag or Digest.of(data)}",
            expect=(201,),
            headers={"Content-Type": MANIFEST},
            body=lambda: data,
        )
        return "OCI-Subject" in answer.headers

    def attach(self, data: bytes, descriptor: Descriptor, subject: Digest) -> None:
        """Store a manifest that has a subject, so that it is found from there."""
        if self.put(data):
            return
        # The list is read, changed and written back: whoever loses a race against another writer
        # finds its own entry gone and adds it again.
        tag = _tag_of(subject)
        for attempt in range(ATTEMPTS):
            held = self._tagged(tag)
            if any(entry.digest == descriptor.digest for entry in held):
                return
            self._put_list(tag, [*held, descriptor])
            if attempt:
                self._remote.sleep(0.1 * attempt)
        if any(entry.digest == descriptor.digest for entry in self._tagged(tag)):
            return
        raise Unavailable(
            f"registry {self._remote.ref.host}: the list of what is attached to {subject.short} "
            f"was replaced {ATTEMPTS} times by other writers",
            hint="let the other pushes end, then run the same command again",
            reference="oci-referrers-race",
        )

    def referrers(self, subject: Digest) -> list[Digest]:
        """What is attached to a manifest, from the server's list and from the client's."""
        found: dict[Digest, None] = {}
        if self._lists is not False:
            listed = self._listed(subject)
            self._lists = listed is not None
            found.update(dict.fromkeys(listed or []))
        found.update(dict.fromkeys(entry.digest for entry in self._tagged(_tag_of(subject))))
        return list(found)

    def _listed(self, subject: Digest) -> list[Digest] | None:
        """From the server; None if it keeps no such lists."""
        where: str | None = f"referrers/{subject}"
        found: list[Digest] = []
        for _ in range(_MAX_PAGES):
            if where is None:
                return found
            answer = self._remote.request("GET", where, expect=(200, 400, 404, 405), stream=True)
            with answer:
                kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
                if answer.status_code != 200 or kind != _INDEX:
                    return None
                found += [entry.digest for entry in self._entries(_body(answer), f"{subject}")]
                following = answer.links.get("next", {}).get("url")
                where = None if following is None else _joined(answer, following)
        return found

    def _tagged(self, tag: str) -> list[Descriptor]:
        try:
            data = self._get(tag, _INDEX)
        except NotFound:
            return []
        return self._entries(data, tag)

    def _entries(self, data: bytes, where: str) -> list[Descriptor]:
        try:
            index = json.loads(data)
            if index.get("mediaType", _INDEX) != _INDEX:
                return []
            entries = [Descriptor.model_validate(entry) for entry in index["manifests"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError):
            raise self._unusable(
                f"its list of what is attached to {where} is not readable"
            ) from None
        if len(entries) > MAX_ATTACHED:
            raise self._unusable(f"it lists {len(entries):,} manifests as attached to {where}")
        return entries

    def _put_list(self, tag: str, entries: list[Descriptor]) -> None:
        plain: list[Any] = [
            entry.model_dump(mode="json", by_alias=True, exclude_none=True) for entry in entries
        ]
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": plain}
        self._remote.request(
            "PUT",
            f"manifests/{tag}",
            expect=(201,),
            headers={"Content-Type": _INDEX},
            body=lambda: canonical_json(index),
        )

    def _get(self, reference: str, kind: str) -> bytes:
        answer = self._remote.request(
            "GET", f"manifests/{reference}", expect=(200,), headers={"Accept": kind}, stream=True
        )
        with answer:
            data = _body(answer)
        if len(data) > MAX_MANIFEST_BYTES:
            raise self._unusable(
                f"manifest {reference} is longer than {MAX_MANIFEST_BYTES:,} bytes"
            )
        return data

    def _unusable(self, what: str) -> IntegrityError:
        return IntegrityError(
            f"registry {self._remote.ref.host}: {what}",
            hint="look at it with another OCI tool, such as `oras discover`",
            reference="oci-answer-unusable",
        )


def _tag_of(subject: Digest) -> str:
    return f"sha256-{subject.hex}"


def _joined(answer: requests.Response, url: str) -> str:
    from urllib.parse import urljoin

    return urljoin(answer.url, url)


def _body(answer: requests.Response) -> bytes:
    """At most one byte more than a manifest may have."""
    from urllib3.exceptions import HTTPError

    try:
        return bytes(answer.raw.read(MAX_MANIFEST_BYTES + 1, decode_content=True))
    except (HTTPError, OSError):
        raise Unavailable(
            "the registry broke off in the middle of its answer",
            hint="run the same command again",
            reference="oci-unreachable",
        ) from None
