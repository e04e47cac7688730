"""Image tags to digests, asked of the registry through the Docker Engine and its logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.docker_engine.connect import connect
from engine_pipeline.docker_engine.images import digest_of_tag
from engine_registry.digest import Digest

if TYPE_CHECKING:
    from docker import DockerClient


class DockerImages:
    """An `ImageResolver`; connects when first asked."""

    def __init__(self) -> None:
        self._client: DockerClient | None = None

    def digest_of(self, reference: str) -> Digest:
        """The digest of `reference` now; of an image for several platforms, that of its index.

        Raises:
            NotFound: `image-not-found`.
            RefusedByPolicy: `image-pull-denied`.
            Unavailable: the daemon or the registry does not answer.
        """
        self._client = self._client or connect()
        return Digest.parse(digest_of_tag(self._client, reference))
