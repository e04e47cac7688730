"""What to type where a rollback is refused: the whole next command, ready to be pasted.

A refused rollback goes nowhere by itself: it names the release that cannot be used, why, and the
best other one that can. A person decides.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from engine_pipeline.promote.findings import OVERRIDABLE, Decision
from engine_pipeline.promote.rules import fits, rollback_candidates
from engine_registry.errors import EngineCIError, IntegrityError, NotFound
from engine_registry.refs import ProductRef, ReleaseRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine_registry.digest import Digest
    from engine_registry.events import ChannelState, WasLive
    from engine_registry.registry import Registry


def command(state: ChannelState, number: int, reason: str, overrides: Iterable[str] = ()) -> str:
    """The command that takes the channel back to release `number`, in backticks."""
    accepted = "".join(f" --override {name}" for name in sorted(overrides))
    # A hint may not end early, whatever the reason holds.
    text = quote(reason.replace("`", "'"))
    return f"`enginectl rollback {state.name} --to {number}{accepted} --reason {text}`"


@contextmanager
def saying_next(
    registry: Registry,
    act: str,
    state: ChannelState,
    number: int,
    reason: str,
    engine: Digest | None,
) -> Iterator[None]:
    """Of a release that is not whole: say which, with which engine, and what to go back to.

    Args:
        registry: where both are.
        act: what was refused, in words.
        state: of the channel.
        number: the release that was to go live.
        reason: as given.
        engine: of that release, as the channel names it; None if it was not live lately.
    """
    try:
        yield
    except (NotFound, IntegrityError) as error:
        if error.name.startswith("rule-") or error.name == "registry-missing":
            raise
        named = f" (engine {engine.short})" if engine is not None else ""
        error.message = f"{act}{named} refused: {error.message}"
        error.args = (error.message,)
        found = next_whole(registry, state, number)
        error.hint = (
            f"release {found.live.number} is whole: {command(state, found.live.number, reason)}"
            if found is not None
            else f"no other release that was live there is whole; {error.hint}"
        )
        raise


def with_commands(
    registry: Registry,
    decision: Decision,
    state: ChannelState,
    number: int,
    reason: str,
    accepted: frozenset[str],
) -> Decision:
    """The decision, its first broken rule hinting at whole commands."""
    if not decision.broken:
        return decision
    first = decision.broken[0]
    broken = {finding.rule for finding in decision.broken}
    ways = []
    if first.rule != "changes" and (found := next_whole(registry, state, number)) is not None:
        ways.append(f"release {found.live.number}: {command(state, found.live.number, reason)}")
    if broken <= OVERRIDABLE:
        ways.append(f"this one after all: {command(state, number, reason, accepted | broken)}")
    if not ways:
        return decision
    hinting = replace(first, hint="; ".join(ways))
    return Decision(findings=tuple(hinting if f is first else f for f in decision.findings))


def next_whole(registry: Registry, state: ChannelState, but: int) -> WasLive | None:
    """The best other release to go back to that is whole and built for the channel's SKU."""
    return next(
        (
            entry
            for entry in rollback_candidates(state)
            if entry.live.number != but and _is_usable(registry, state, entry)
        ),
        None,
    )


def _is_usable(registry: Registry, state: ChannelState, entry: WasLive) -> bool:
    ref = ReleaseRef(ProductRef(state.model, state.target), entry.live.number)
    try:
        release = registry.releases.release(ref)
        registry.engines.check_engine(entry.live.engine)
    except EngineCIError:
        return False
    same = (release.digest, release.content.engine) == (entry.live.release, entry.live.engine)
    return same and fits(release.content.platform, state).holds
