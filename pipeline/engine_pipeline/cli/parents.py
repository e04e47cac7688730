"""From `--parent`, or from the policy, to the engines whose answers a candidate is held to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.parity_parent import NoParent, ParentEngine
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_registry.digest import Digest
    from engine_registry.record import Record, Release

# A name without slashes is a channel of the same product, unless it can only be a digest.
_CHANNEL = re.compile(r"(?!(?:sha256:)?[0-9a-f]{8,}$)[a-z0-9][a-z0-9.-]*")


def with_parents(policy: GatePolicy, gate: str, parents: Sequence[str]) -> GatePolicy:
    """The policy, with what the command line says in place of its own parents.

    That is another policy with another digest: a report made under it is no evidence for the one in
    `channels.yaml`.

    Raises:
        InvalidInput: `--parent` for a gate without bars for it.
    """
    from engine_registry.errors import InvalidInput

    if not parents:
        return policy
    if policy.parity is None:
        raise InvalidInput(
            f"gate {gate} has no bars for parity, --parent names {', '.join(parents)}",
            hint=f"add `parity:` to gate {gate} in channels.yaml; docs/parity.md says how",
            reference="gate-without-parity",
        )
    parity = policy.parity.model_copy(update={"parent": tuple(dict.fromkeys(parents))})
    return policy.model_copy(update={"parity": parity})


def parents_for(
    shell: Shell, record: Record, policy: GatePolicy
) -> tuple[ParentEngine | NoParent, ...]:
    """Whom the candidate is compared with, in the policy's order; who is not there says why.

    Raises:
        InvalidInput, NotFound: a name is no reference, or names nothing of this registry.
        Incompatible: a parent is for another device.
    """
    if policy.parity is None:
        return ()
    return tuple(_parent(shell, record, name) for name in policy.parity.parent)


def still_held_to(
    known: Sequence[ParityResult], parents: Sequence[ParentEngine | NoParent]
) -> bool:
    """Whether known comparisons were made with the parents that there are now."""
    now = [one.parent.engine for one in parents]
    return [one.parent.engine for one in known] == now


def _parent(shell: Shell, record: Record, name: str) -> ParentEngine | NoParent:
    from engine_pipeline.gates.outcome import Outcome
    from engine_pipeline.gates.parity_parent import NoParent
    from engine_pipeline.gates.parity_result import Parent
    from engine_registry.refs import ChannelRef

    named, release = name, None
    if ":" not in name and name.count("/") == 1:
        found = _of_spec(shell, record, name)
        if isinstance(found, str):
            return NoParent(parent=Parent(named=name), outcome=Outcome.ERRORED, why=found)
        engine = found
    else:
        if _CHANNEL.fullmatch(name):
            named = f"{record.model}/{record.target}/{name}"
            shell.policies.for_channel(ChannelRef.parse(named))
        is_channel = ":" not in named and named.count("/") == 2
        if is_channel and shell.registry.channels.state(ChannelRef.parse(named)).live is None:
            why = f"nothing is live on {named}"
            return NoParent(parent=Parent(named=named), outcome=Outcome.SKIPPED, why=why)
        resolved = shell.registry.resolve(named)
        engine, release = resolved.engine, resolved.release
    if engine == record.engine:
        parent = Parent(named=named, engine=engine, precision=record.precision)
        why = f"the candidate is itself {named}"
        return NoParent(parent=parent, outcome=Outcome.SKIPPED, why=why)
    return _engine(shell, record, named, engine, release)


def _engine(
    shell: Shell, record: Record, named: str, engine: Digest, release: Release | None
) -> ParentEngine:
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.parity_parent import ParentEngine
    from engine_pipeline.gates.parity_result import Parent
    from engine_pipeline.promote.release import lock_of, runtime_config
    from engine_registry.errors import Incompatible

    records = shell.registry.engines.records(engine)
    theirs = latest_record(records)
    if release is not None:
        theirs = next((r for r in records if r.digest == release.content.record), theirs)
    if theirs.platform.sku != record.platform.sku:
        raise Incompatible(
            f"parent {named} (engine {engine.short}) is for {theirs.platform.sku}, engine "
            f"{record.engine.short} for {record.platform.sku}; one device cannot serve both",
            hint="name a parent of the same target under `parity:` in channels.yaml",
            reference="parent-of-other-device",
        )
    lock = lock_of(shell.registry, theirs)
    return ParentEngine(
        parent=Parent(named=named, engine=engine, precision=theirs.precision),
        engine=engine,
        backend=shell.backend(theirs.kind),
        runtime_config=runtime_config(lock) if release is None else release.content.runtime_config,
        runtime=theirs.platform.runtime,
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
    )


def _of_spec(shell: Shell, record: Record, spec: str) -> Digest | str:
    """The newest engine of a spec that was built from the candidate's own weights; or why none."""
    from engine_pipeline.promote.release import lock_of
    from engine_registry.index_query import EngineQuery

    shell.index.refresh()
    found = shell.index.find(EngineQuery(text=spec, limit=1000))
    source = lock_of(shell.registry, record).source
    other = ""
    for engine in (one.digest for one in found.engines if one.spec == spec):
        for theirs in shell.registry.engines.records(engine):
            if theirs.spec != spec:
                continue
            built_from = lock_of(shell.registry, theirs).source
            if built_from.files == source.files:
                return engine
            other = (
                f"engine {engine.short} of it is from revision {built_from.revision}, this one "
                f"from {source.revision}; "
            )
    return (
        f"no engine of spec {spec} from the same weights: {other}"
        f"build it: enginectl build build_specs/{spec}.yaml"
    )
