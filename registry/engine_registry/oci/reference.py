"""Addresses of engines in OCI registries: `oci://HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

# Source: OCI distribution-spec 1.1, "Pulling manifests": <name> and <reference>.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_REFERENCE = re.compile(
    rf"oci://(?P<host>{_HOST})/(?P<repository>[^:@]+)"
    rf"(?::(?P<tag>{_TAG}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?"
)
_MAX_REPOSITORY = 255
# What Docker's own registry is called, and where it is.
_HUB, _HUB_HOST = "docker.io", "registry-1.docker.io"


@dataclass(frozen=True, slots=True)
class OciRef:
    """A repository of an OCI registry, and perhaps a tag or a digest in it."""

    host: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            InvalidInput: it is none; a credential in it is never repeated.
        """
        found = _REFERENCE.fullmatch(text)
        repository = found["repository"] if found else ""
        if (
            found is None
            or REPOSITORY.fullmatch(repository) is None
            or len(repository) > _MAX_REPOSITORY
        ):
            shown = "***" if "@" in text.partition("@sha256:")[0] else text[:120]
            raise InvalidInput(
                f"not an address in an OCI registry: {shown!r} (want "
                "oci://HOST/REPOSITORY[:TAG] or oci://HOST/REPOSITORY@sha256:…, lower case)",
                hint="write it as in oci://ghcr.io/team/engines:prod; log in with `docker login`",
                reference="invalid-oci-address",
            )
        digest = Digest.parse(found["digest"]) if found["digest"] else None
        return cls(found["host"], repository, found["tag"], digest)

    @property
    def server(self) -> str:
        """The host that answers."""
        return _HUB_HOST if self.host == _HUB else self.host

    @property
    def is_local(self) -> bool:
        """Whether the registry is this very machine, where no network can listen in."""
        name = self.host.rpartition(":")[0] if re.search(r":[0-9]+$", self.host) else self.host
        return name in {"localhost", "127.0.0.1", "[::1]"}

    def at(self, digest: Digest) -> str:
        """The address of one manifest in this repository."""
        return f"oci://{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"oci://{self.host}/{self.repository}{tag}{digest}"
