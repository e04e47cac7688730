"""Images of the Docker Engine: having one by its digest, and which digest a tag stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.docker_engine.connect import asking
from engine_pipeline.docker_engine.failures import explain
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from docker import DockerClient

    from engine_pipeline.progress import Progress


def have_image(client: DockerClient, image: str, progress: Progress) -> None:
    """Pull `image`, which names a digest, unless the daemon has it.

    Raises:
        InvalidInput: `image-not-pinned`: a tag may be another image tomorrow.
        NotFound, RefusedByPolicy, Incompatible, Unavailable: it cannot be pulled; each its own.
    """
    import docker

    if "@sha256:" not in image:
        raise InvalidInput(
            f"image {image} is named by a tag, containers run digests only",
            hint="run `enginectl lock` on the spec, it pins the image",
            reference="image-not-pinned",
        )
    with asking(f"image {image}"):
        try:
            client.images.get(image)
        except docker.errors.ImageNotFound:
            progress.phase("pull", image)
            _pull(client, image, progress)


def _pull(client: DockerClient, image: str, progress: Progress) -> None:
    # Bytes done and in all of each layer; the daemon says them layer by layer.
    layers: dict[str, tuple[int, int]] = {}
    for line in client.api.pull(image, stream=True, decode=True):
        if "error" in line:
            raise explain(f"image {image}", str(line["error"]))
        detail: dict[str, Any] = line.get("progressDetail") or {}
        if line.get("status") == "Downloading" and "total" in detail:
            layers[line["id"]] = detail["current"], detail["total"]
            done, total = map(sum, zip(*layers.values(), strict=True))
            progress.update(done, total, "bytes")
    client.images.get(image)


def digest_of_tag(client: DockerClient, reference: str) -> str:
    """The digest of the manifest or index that the registry has for `reference` now."""
    with asking(f"image {reference}"):
        return str(client.images.get_registry_data(reference).id)
