"""Target `triton`: a model repository, an explicit load, and what the server then says of itself.

    1 write everything beside what is live: engine files, hashed; all models, in one version
    2 point `current` at it; the server reads its repository through that link, when told to
    3 load model by model; the server lets an old one go only when the new one is ready
    4 read back: each model ready in this generation alone, its config naming this engine
    5 one prompt through what clients call

A failure in 3 to 5 points back and brings the server back to what it served before.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.targets.durable import write_json
from engine_pipeline.targets.engine_files import damaged_files, place_engine
from engine_pipeline.targets.ownership import refuse_foreign
from engine_pipeline.targets.port import NothingRuns, Reading, Running
from engine_pipeline.targets.tree import Tree, Version
from engine_pipeline.targets.triton.bring import Loaded, bring, loaded_apart, managed, prove
from engine_pipeline.targets.triton.client import TritonClient
from engine_pipeline.targets.triton.launch import launch_document
from engine_pipeline.targets.triton.plan import MANAGED
from engine_pipeline.targets.triton.repository import Templates, is_model, write_repository
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import EngineCIError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.progress import Progress
    from engine_pipeline.targets.definition import TritonDefinition
    from engine_pipeline.targets.port import Fence, Order
    from engine_pipeline.targets.tree import Stage
    from engine_registry.record import Release

MODELS, SERVE = "models", "serve.json"


class TritonTarget:
    """One server and its directory; see `targets.port.Target`.

    Args:
        definition: of `targets.yaml`.
        who: who deploys, for whoever finds the target held.
    """

    def __init__(self, definition: TritonDefinition, *, who: str) -> None:
        self.name = f"triton:{definition.url}"
        self._definition = definition
        self._who = who
        self._seen_as = definition.seen_as or definition.path
        self._tree = Tree(Path(definition.path), definition.keep)
        self._client = TritonClient(
            definition.url,
            load_timeout_s=definition.load_timeout_s,
            repository=f"{self._seen_as}/current/{MODELS}",
        )

    def check(self, release: Release) -> Digest:
        """Refuse other kinds, and templates that are not those of a serving image."""
        templates = self._templates(release)
        return Digest.of(
            canonical_json(
                {
                    "kind": self._definition.kind,
                    "seen_as": self._seen_as,
                    "settings": dict(self._definition.settings),
                    "templates": str(templates.digest),
                }
            )
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """See `Target.held`; makes an empty repository that a server can be started on.

        Models of somebody else's may lie beside it: the server's own repository is often there.

        Raises:
            InvalidInput: anything else of somebody else's lies there.
        """
        refuse_foreign(self._tree.root, may_stay=is_model)
        with self._tree.held(self._who):
            if not self._tree.pointer.is_symlink():
                self._tree.point_at_nothing((MODELS,))
            yield

    def read(self, *, deep: bool) -> Reading:
        """What the server says it has loaded, and whether that is what `current` names."""
        fence = self._tree.fence()
        ready = managed(self._client)
        if not ready:
            reason = f"{self._client.url}: no model of this target is loaded"
            return Reading(serves=NothingRuns(reason=reason), fence=fence)
        generation = max(version for versions in ready.values() for version in versions)
        version = self._tree.version(generation)
        if isinstance(version, NothingRuns):
            reason = f"{self._client.url} has generation {generation} loaded; {version.reason}"
            return Reading(serves=NothingRuns(reason=reason), fence=fence)
        return Reading(
            serves=Running(
                deployment=version.deployment,
                generation=generation,
                apart=tuple(self._apart(version)),
                damaged=damaged_files(version.engine_dir, version.manifest, deep=deep),
            ),
            fence=fence,
        )

    def raise_fence(self, fence: Fence) -> None:
        """See `Target.raise_fence`."""
        self._tree.raise_fence(fence)

    def apply(self, order: Order, progress: Progress) -> None:
        """Write, point, load, read back, prompt; or bring back what was served before."""
        before = self._before()
        release = order.deployment.release
        templates = self._templates(release)
        stage = self._write(order, templates, progress)
        other_tokenizer = (
            before is not None
            and before.deployment.release.content.tokenizer != release.content.tokenizer
        )
        self._tree.point_at(stage.name)
        try:
            bring(
                self._client,
                templates.models,
                stage.generation,
                progress,
                entries_off=other_tokenizer,
                replace=self._definition.swap == "replace",
            )
            prove(
                self._client,
                templates.models,
                stage.generation,
                release.content.engine,
                self._definition.prompt,
                progress,
            )
        except EngineCIError as error:
            self._restore(error, before, progress)
            raise
        except BaseException:
            # Interrupted: the server goes on with what it has, the next deployment sorts it out.
            self._point_back(before)
            raise
        self._tree.prove(stage.name)
        self._tree.prune()

    def _write(self, order: Order, templates: Templates, progress: Progress) -> Stage:
        """Engine and version, whole on disk; nothing live changes."""
        release = order.deployment.release
        with self._tree.on_disk("lay the engine out"):
            engine_dir = place_engine(
                self._tree.engines_dir,
                release.content.engine,
                order.manifest,
                order.lay_out,
                progress,
            )
        facts = order.inspect(engine_dir)
        command = order.serve(facts)
        with self._tree.staged(order.deployment, order.manifest, engine_dir) as stage:
            write_repository(
                templates,
                stage.path / MODELS,
                stage.generation,
                release=release,
                facts=facts,
                engine_dir=engine_dir,
                seen_as=f"{self._seen_as}/engines/{engine_dir.name}",
                settings=self._definition.settings,
            )
            launch = launch_document(
                release,
                repository=self._client.repository,
                ranks=command.gpus,
                shm_bytes=command.shm_bytes,
            )
            write_json(stage.path / SERVE, launch)
        return stage

    def _restore(self, error: EngineCIError, before: Version | None, progress: Progress) -> None:
        """Back to what was served; the error says whether that worked."""
        progress.note(f"not served: {error.message}")
        served = before.deployment.release.name if before else "nothing"
        try:
            self._point_back(before)
            bring(
                self._client,
                _models_of(before) if before else (),
                before.generation if before else 0,
                progress,
                entries_off=True,
                # There may be no memory for both, and what is in the way is not wanted.
                replace=True,
            )
        except EngineCIError as second:
            raise Unavailable(
                f"{error.message}; and going back to {served} failed: {second.message}",
                hint="restart Triton: `current` names what was served before",
                reference="triton-not-restored",
            ) from error
        error.message += f"; {served} is served, as before"
        error.args = (error.message,)

    def _point_back(self, before: Version | None) -> None:
        if before is None:
            self._tree.point_at_nothing((MODELS,))
        else:
            self._tree.point_at(before.path.name)

    def _before(self) -> Version | None:
        """What is served, and was proven; a deployment that was killed halfway does not count."""
        ready = managed(self._client)
        loaded = sorted({v for versions in ready.values() for v in versions}, reverse=True)
        found = [self._tree.version(generation) for generation in loaded]
        for version in (*found, self._tree.current()):
            if isinstance(version, Version) and (version.proven or _is_whole(version, ready)):
                return version
        return None

    def _apart(self, version: Version) -> list[str]:
        """Where server, pointer and version do not agree."""
        pointed = self._tree.current()
        generation = version.generation
        found = []
        if isinstance(pointed, NothingRuns):
            found.append(f"the server has generation {generation}; {pointed.reason}")
        elif pointed.generation != generation:
            found.append(
                f"the server has generation {generation}, `current` names {pointed.generation}: "
                "a restart would serve that one"
            )
        apart = loaded_apart(
            self._client, _models_of(version), generation, version.deployment.engine
        )
        return found + [f"wanted loaded {wanted}, the server says {said}" for wanted, said in apart]

    def _templates(self, release: Release) -> Templates:
        return Templates(Path(self._definition.templates), release.content.kind)


def _models_of(version: Version) -> tuple[str, ...]:
    """The models of a version on disk, in the order of loading."""
    place = version.path / MODELS
    return tuple(model for model in MANAGED if (place / model).is_dir())


def _is_whole(version: Version, ready: Loaded) -> bool:
    """Whether the server has this generation of all its models, and nothing else."""
    return ready == dict.fromkeys(_models_of(version), frozenset({version.generation}))
