"""Make a target serve what its channel says. Nothing is written to the registry.

1 hold the target; everything below sees it still
2 read the channel, its release, the target
3 rules: the log, the fence, the node
4 the engine's bytes are whole in the registry
5 raise the fence: from here on nothing older comes back; claim the engine's bytes on this node
6 apply, unless the target serves just that
7 read back what is really served
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.deploy.rules import (
    Difference,
    decide_deployment,
    differences,
    refuse_deployment,
)
from engine_pipeline.targets.port import Deployment, Fence, Order
from engine_registry.errors import EngineCIError, Incompatible, IntegrityError, NotFound
from engine_registry.refs import ReleaseRef
from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, EngineFacts, ServeCommand
    from engine_pipeline.progress import Progress
    from engine_pipeline.promote.findings import Finding
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.targets.port import Reading, Target
    from engine_registry.digest import Digest
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of a deployment.

    Attributes:
        changed: False if the target served just that already.
        findings: what the rules said.
        before, after: what the target said of itself.
    """

    changed: bool
    deployment: Deployment
    findings: tuple[Finding, ...]
    before: Reading
    after: Reading


def deploy(
    desk: Desk,
    channel: ChannelRef,
    target: Target,
    *,
    backend: Callable[[str], Backend],
    fit: Callable[[Release], tuple[Finding, ...]],
    progress: Progress,
    claim: Callable[[Deployment], None] = lambda _: None,
    rebind: bool = False,
    deep: bool = False,
) -> Deployed:
    """Bring `target` to the release that is live on `channel`; a no-op if it is there.

    Args:
        desk: registry, actor, clock.
        channel: what the target follows.
        target: what to bring there.
        backend: knows an engine kind by name.
        fit: what the rules say of a release on the target's node.
        progress: told what goes on.
        claim: told what is about to be served, once nothing stands against it.
        rebind: let the target follow this channel although it followed another.
        deep: hash what is there already, and heal it where it is damaged.

    Raises:
        NotFound: nothing is live on the channel, or bytes are missing.
        IntegrityError: stored bytes do not match their digest.
        RefusedByPolicy, Conflict, Incompatible: the first broken rule.
        EngineCIError: the target could not do it; what it served before it still serves.
    """
    with target.held():
        wanted = wanted_of(desk, channel, target)
        before = target.read(deep=deep)
        logged = logged_digest(desk.registry, channel, before.fence)
        findings = decide_deployment(
            wanted,
            before.fence,
            logged=logged,
            fit=fit(wanted.release),
            rebind=rebind,
        )
        refuse_deployment(target.name, findings)
        engine = desk.registry.engines.check_engine(wanted.engine, Depth.UNCHANGED)
        target.raise_fence(
            Fence(channel=wanted.channel, event=wanted.event, event_digest=wanted.event_digest)
        )
        claim(wanted)
        if not differences(wanted, before):
            return Deployed(
                changed=False, deployment=wanted, findings=findings, before=before, after=before
            )
        kind = backend(wanted.release.content.kind)
        order = Order(
            deployment=wanted,
            manifest=engine.manifest,
            lay_out=lambda path: _lay_out(desk.registry, wanted.engine, path),
            inspect=lambda path: _inspect(kind, wanted.release, path),
            serve=lambda facts: _serve(kind, wanted.release, facts),
        )
        target.apply(order, progress)
        after = target.read(deep=False)
        _refuse_apart(target.name, differences(wanted, after))
        return Deployed(
            changed=True, deployment=wanted, findings=findings, before=before, after=after
        )


def wanted_of(desk: Desk, channel: ChannelRef, target: Target) -> Deployment:
    """What `target` should serve: the release live on `channel`, by the event that put it there.

    Raises:
        NotFound: nothing is live there.
        IntegrityError: the release is not the one the channel names.
        EngineCIError: the target can never serve it.
    """
    registry = desk.registry
    state = registry.channels.state(channel)
    if state.live is None:
        raise NotFound(
            f"channel {channel}: nothing is live there",
            hint=f"`enginectl promote RELEASE --to {channel.channel}` first",
            reference="nothing-live",
        )
    live, event = state.live, state.history[0].event
    event_digest = registry.channels.event_digest(channel, event)
    if event_digest is None:
        raise IntegrityError(
            f"{channel}: event {event} put release {live.number} there, and is missing",
            hint="run `enginectl verify`, then put the event back from a copy of the registry, as "
            "docs/operations.md says",
            reference="event-log-broken",
        )
    release = registry.releases.release(ReleaseRef(channel.product, live.number))
    if (release.digest, release.content.engine) != (live.release, live.engine):
        raise IntegrityError(
            f"{channel}: names release {live.number} as {live.release.short} with engine "
            f"{live.engine.short}, stored is {release.digest.short} with "
            f"{release.content.engine.short}",
            hint="run `enginectl verify` to list every damaged file",
            reference="release-differs",
        )
    return Deployment(
        channel=str(channel),
        event=event,
        event_digest=event_digest,
        release=release,
        settings=target.check(release),
        actor=desk.actor,
        at=desk.clock(),
    )


def logged_digest(registry: Registry, channel: ChannelRef, fence: Fence | None) -> Digest | None:
    """The channel's own digest of the event that the target remembers."""
    if fence is None or fence.channel != str(channel):
        return None
    return registry.channels.event_digest(channel, fence.event)


def _lay_out(registry: Registry, engine: Digest, path: Path) -> None:
    registry.engines.materialise(engine, path)


def _inspect(backend: Backend, release: Release, path: Path) -> EngineFacts:
    """What the files say, which must be what the release says.

    Raises:
        Incompatible: reference `engine-differs-from-release`.
    """
    facts = backend.inspect(path)
    platform = release.content.platform
    pairs = [("kind", release.content.kind, facts.kind.value)]
    pairs += [
        (f"{name} version", platform.runtime[name], version)
        for name, version in facts.runtime.items()
        if name in platform.runtime
    ]
    ranks = platform.parallelism
    for name, wanted in (("tensor", ranks.tensor), ("pipeline", ranks.pipeline)):
        if name in facts.details:
            pairs.append((f"{name} ranks", str(wanted), str(facts.details[name])))
    apart = [
        f"{what}: release {ours}, files {theirs}" for what, ours, theirs in pairs if ours != theirs
    ]
    if apart:
        raise Incompatible(
            f"engine {release.content.engine.short} is not what {release.name} says: "
            + "; ".join(apart),
            hint=f"look with `enginectl show {release.name}`, then cut a new release",
            reference="engine-differs-from-release",
        )
    return facts


def _serve(backend: Backend, release: Release, facts: EngineFacts) -> ServeCommand:
    # The runtime that the engine was released for, not whichever is supported today.
    runtime = facts.runtime | release.content.platform.runtime
    recorded = facts.model_copy(update={"runtime": runtime})
    return backend.serve(recorded, release.content.runtime_config)


def _refuse_apart(target: str, apart: tuple[Difference, ...]) -> None:
    if apart:
        sides = "; ".join(f"{d.what}: want {d.channel}, found {d.target}" for d in apart[:4])
        raise EngineCIError(
            f"{target}: deployed, but what is read back differs: {sides}",
            hint="somebody else may write there; run `enginectl drift`, then deploy again",
            reference="read-back-differs",
        )
