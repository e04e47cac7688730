"""Target `directory`: engine files, and how to serve them, behind one atomic symbolic link.

    current/engine/        the engine's files
    current/serve.json     image, command and environment that serve it, ranks counted in the engine
    current/deployment.json   the whole release: tokenizer, serving image, runtime configuration

Whoever serves starts from `current` and is restarted by its own means after a deployment; a server
that is running goes on with the files it has open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.targets.durable import write_json
from engine_pipeline.targets.engine_files import damaged_files, place_engine
from engine_pipeline.targets.ownership import refuse_foreign
from engine_pipeline.targets.port import NothingRuns, Reading, Running
from engine_pipeline.targets.tree import Tree
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import ServeCommand
    from engine_pipeline.progress import Progress
    from engine_pipeline.targets.port import Fence, Order
    from engine_registry.record import Release

SERVE = "serve.json"


class DirectoryTarget:
    """One directory that serves one channel; see `targets.port.Target`.

    Args:
        root: absolute.
        keep: earlier versions that stay with their engines.
        who: who deploys, for whoever finds the target held.
    """

    def __init__(self, root: Path, *, keep: int, who: str) -> None:
        self.name = f"directory:{root}"
        self._tree = Tree(root, keep)
        self._who = who

    def check(self, release: Release) -> Digest:  # noqa: ARG002
        """Any kind of engine can lie in a directory, and nothing about it can be set."""
        return Digest.of(canonical_json({"kind": "directory"}))

    def held(self) -> AbstractContextManager[None]:
        """See `Target.held`; raises InvalidInput for a directory of somebody else's."""
        refuse_foreign(self._tree.root)
        return self._tree.held(self._who)

    def read(self, *, deep: bool) -> Reading:
        """What `current` names, with its files looked at; sizes only unless `deep`."""
        version = self._tree.current()
        fence = self._tree.fence()
        if isinstance(version, NothingRuns):
            return Reading(serves=version, fence=fence)
        return Reading(
            serves=Running(
                deployment=version.deployment,
                generation=version.generation,
                damaged=damaged_files(version.engine_dir, version.manifest, deep=deep),
            ),
            fence=fence,
        )

    def raise_fence(self, fence: Fence) -> None:
        """See `Target.raise_fence`."""
        self._tree.raise_fence(fence)

    def apply(self, order: Order, progress: Progress) -> None:
        """Lay the engine out, write the version, move the link."""
        deployment = order.deployment
        with self._tree.on_disk("lay the engine out"):
            engine_dir = place_engine(
                self._tree.engines_dir, deployment.engine, order.manifest, order.lay_out, progress
            )
        command = order.serve(order.inspect(engine_dir))
        with self._tree.staged(deployment, order.manifest, engine_dir) as stage:
            write_json(stage.path / SERVE, serve_document(deployment.release, command))
        progress.phase("switch", f"{self._tree.pointer} to generation {stage.generation}")
        self._tree.prove(stage.name)
        self._tree.point_at(stage.name)
        self._tree.prune()


def serve_document(release: Release, command: ServeCommand) -> dict[str, object]:
    """`serve.json`: everything that starts a server, `{engine}` being `current/engine`."""
    return {
        "schema_version": 1,
        "release": release.name,
        "serving_image": release.content.serving_image,
        "runtime_config": release.content.runtime_config,
        **command.model_dump(mode="json"),
    }
