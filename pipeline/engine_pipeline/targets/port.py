"""What a deployment asks of a target, and what a target says of itself. Pure values and one port.

A target is one place that serves one channel: a directory that a server reads, or a server with
its model repository. It keeps its own record of what was put there, so that what a channel says and
what is really there can be compared without asking whoever deployed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Document
from engine_registry.record import Actor, Release, Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import EngineFacts, ServeCommand
    from engine_pipeline.progress import Progress
    from engine_registry.manifest import Manifest


class Deployment(Document):
    """A release as it was put on a target: what, on whose word, by whom.

    Attributes:
        channel: `MODEL/TARGET/CHANNEL` that the target follows.
        event: the channel's event that made the release live.
        event_digest: its digest; tells one registry's log from another's.
        release: the whole release, so that the target can say what it serves without a registry.
        settings: digest of the target's own settings it was put there with.
    """

    channel: Text
    event: Annotated[int, Field(ge=1)]
    event_digest: Digest
    release: Release
    settings: Digest
    actor: Actor
    at: AwareDatetime

    @property
    def engine(self) -> Digest:
        """Digest of the engine."""
        return self.release.content.engine


class Fence(Document):
    """The newest event that anybody began to deploy here; an older one never comes back."""

    channel: Text
    event: Annotated[int, Field(ge=1)]
    event_digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file on the target that is not what the engine's manifest says; both sides."""

    path: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What is served there now.

    Attributes:
        deployment: what was put there.
        generation: counts the deployments of this target; grows with each, also with a rollback.
        apart: what does not agree within the target, one line each with both sides.
        damaged: files that are not the engine's; looked for only as deep as asked.
    """

    deployment: Deployment
    generation: int
    apart: tuple[str, ...] = ()
    damaged: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingRuns:
    """No deployment is served there, or none that can be named; `reason` is one line."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a target says of itself; `fence` is None where nothing was ever deployed."""

    serves: Running | NothingRuns
    fence: Fence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A deployment to carry out.

    Attributes:
        manifest: the engine's; its layers name every file with size and digest.
        lay_out: puts the engine's files in a directory that does not exist yet; all or nothing.
        inspect: what the files say, once they agree with the release; raises if they do not.
        serve: how a server for the engine is started with the release's configuration.
    """

    deployment: Deployment
    manifest: Manifest
    lay_out: Callable[[Path], None]
    inspect: Callable[[Path], EngineFacts]
    serve: Callable[[EngineFacts], ServeCommand]


class Target(Protocol):
    """One place that serves. `held` is entered before everything but `check` and `read`.

    Attributes:
        name: what messages call it.
    """

    name: str

    def check(self, release: Release) -> Digest:
        """Refuse at once what this target can never serve; reads no engine, changes nothing.

        Returns:
            The digest of everything but the release that decides what is put there.

        Raises:
            Incompatible: another kind of engine, or a release without what the target needs.
            InvalidInput, NotFound: the target's own settings are wrong or incomplete.
        """
        ...

    def held(self) -> AbstractContextManager[None]:
        """Exclusive use until the block ends; a dead process holds nothing.

        Raises:
            Conflict: reference `target-held`, with who holds it.
        """
        ...

    def read(self, *, deep: bool) -> Reading:
        """What is really there now; `deep` hashes every engine file again.

        Raises:
            Unavailable: it cannot be asked. That is no answer, not a difference.
        """
        ...

    def raise_fence(self, fence: Fence) -> None:
        """Remember durably that nothing older than this event may come here."""
        ...

    def apply(self, order: Order, progress: Progress) -> None:
        """Serve the deployment, proven as far as this target can; returns when it is.

        Until then what was served before goes on. Killed anywhere and called again, it finishes.

        Raises:
            EngineCIError: it could not be done; what was served before is served again, or the
                message says that it is not.
        """
        ...
