"""Which adapter serves which kind of source URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.sources.port import Source


def open_source(uri: str, base_dir: Path) -> Source:
    """The source that serves `uri`; its library loads when it is used.

    Args:
        uri: as in a spec or lock.
        base_dir: what `file://dir` is relative to: the directory of the spec and its lock.

    Raises:
        InvalidInput: no such kind of source.
    """
    scheme = uri.partition("://")[0]
    if scheme == "hf":
        from engine_pipeline.sources.hub import HubSource

        return HubSource()
    if scheme == "package":
        from engine_pipeline.sources.package import PackageSource

        return PackageSource()
    if scheme == "file":
        from engine_pipeline.sources.local import LocalSource

        return LocalSource(base_dir)
    raise InvalidInput(
        f"{uri}: no such kind of source",
        hint="write hf://org/repo, file://dir or package://name",
        reference="source-unknown",
    )
