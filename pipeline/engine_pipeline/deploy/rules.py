"""May this be deployed there, and does a target serve what its channel says. Pure.

1 follows   the target follows this channel, or none yet, or shall follow it from now on
2 log       what was deployed there comes from this channel's own log
3 fence     nothing newer was begun there
4 fit ...   the engine loads on the target's node: the rules of `compat.fit`, each by its name
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.promote.findings import Finding
from engine_pipeline.targets.port import NothingRuns
from engine_registry.errors import Conflict, EngineCIError, ExitCode, Incompatible, RefusedByPolicy

if TYPE_CHECKING:
    from engine_pipeline.targets.port import Deployment, Fence, Reading
    from engine_registry.digest import Digest

_ERRORS: dict[ExitCode, type[EngineCIError]] = {
    ExitCode.POLICY: RefusedByPolicy,
    ExitCode.INCOMPATIBLE: Incompatible,
    ExitCode.CONFLICT: Conflict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing in which a target is not what its channel says; both sides."""

    what: str
    channel: str
    target: str


def decide_deployment(
    wanted: Deployment,
    fence: Fence | None,
    *,
    logged: Digest | None,
    fit: tuple[Finding, ...],
    rebind: bool,
) -> tuple[Finding, ...]:
    """Every rule, in the order above.

    Args:
        wanted: what shall be deployed.
        fence: what the target remembers; None where nothing was ever deployed.
        logged: digest of the event of the fence's number in the wanted channel's log; None if the
            log has no such event.
        fit: findings about the target's node.
        rebind: the target shall follow another channel, or another registry's, from now on.
    """
    if fence is None or rebind:
        return fit
    follows = Finding(
        rule="follows",
        holds=fence.channel == wanted.channel,
        says=f"the target follows {fence.channel}, asked for is {wanted.channel}",
        hint=f"`enginectl deploy {fence.channel}`, or let it follow {wanted.channel} from now on: "
        f"`enginectl deploy {wanted.channel} --rebind`",
    )
    if not follows.holds:
        return (follows, *fit)
    known = Finding(
        rule="log",
        holds=logged == fence.event_digest,
        says=f"the target has event {fence.event} as {fence.event_digest.short}, the channel's log "
        f"has it as {logged.short if logged else 'no such event'}",
        hint=f"if this registry is the right one from now on (a copy of a lost one, say): "
        f"`enginectl deploy {wanted.channel} --rebind`; otherwise name the one it was deployed "
        "from with --registry",
        exit_code=ExitCode.CONFLICT,
    )
    newest = Finding(
        rule="fence",
        holds=fence.event <= wanted.event or not known.holds,
        says=f"event {fence.event} was begun there, asked for is event {wanted.event}",
        hint=f"somebody was faster: look with `enginectl status {wanted.channel}`, then deploy",
        exit_code=ExitCode.CONFLICT,
    )
    return (follows, known, newest, *fit)


def refuse_deployment(target: str, findings: tuple[Finding, ...]) -> None:
    """Raise the first broken rule's error, naming all that are broken; return if none is."""
    broken = [finding for finding in findings if not finding.holds]
    if not broken:
        return
    first = broken[0]
    rest = "".join(f"; also: {finding.says}" for finding in broken[1:])
    raise _ERRORS[first.exit_code](
        f"deployment to {target} refused: {first.says}{rest}",
        hint=first.hint,
        reference=f"rule-{first.rule}",
    )


def differences(wanted: Deployment, reading: Reading) -> tuple[Difference, ...]:
    """Where the target is not what `wanted` says; empty if it serves that and is whole.

    A later event that made the same release live again is no difference.
    """
    serves = reading.serves
    name = wanted.release.name
    if isinstance(serves, NothingRuns):
        return (Difference(what="deployment", channel=name, target=serves.reason),)
    found = serves.deployment
    pairs = [
        ("channel", wanted.channel, found.channel),
        ("release", name, found.release.name),
        ("release document", wanted.release.digest.short, found.release.digest.short),
        ("engine", str(wanted.engine), str(found.engine)),
        ("target settings", wanted.settings.short, found.settings.short),
    ]
    apart = [
        Difference(what=what, channel=channel, target=target)
        for what, channel, target in pairs
        if channel != target
    ]
    apart += [Difference(what="running", channel=name, target=text) for text in serves.apart]
    apart += [
        Difference(what=f"file {item.path}", channel=item.expected, target=item.found)
        for item in serves.damaged
    ]
    return tuple(apart)
