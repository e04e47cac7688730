"""From `--against`, or from the policy, to the live engine that a candidate is compared with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.paired_gate import Opponent
    from engine_pipeline.gates.paired_result import Baseline, PairedResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_registry.record import Record

# A name without slashes is a channel of the same product, unless it can only be a digest.
_CHANNEL = re.compile(r"(?!(?:sha256:)?[0-9a-f]{8,}$)[a-z0-9][a-z0-9.-]*")


def with_against(policy: GatePolicy, record: Record, gate: str, against: str | None) -> GatePolicy:
    """The policy, with what the command line says in place of its own `against`.

    That is another policy with another digest: a report made under it is no evidence for the one in
    `channels.yaml`.

    Raises:
        InvalidInput: `--against` for a gate that compares with nothing.
    """
    from engine_registry.errors import InvalidInput

    if against is None:
        return policy
    if policy.paired is None:
        raise InvalidInput(
            f"gate {gate} compares with nothing, --against names {against}",
            hint=f"add `paired: {{against: prod}}` to gate {gate} in channels.yaml",
            reference="gate-not-paired",
        )
    own = policy.paired.against
    if against in {own, f"{record.model}/{record.target}/{own}"}:
        return policy
    paired = policy.paired.model_copy(update={"against": against})
    return policy.model_copy(update={"paired": paired})


def opponent_for(
    shell: Shell, record: Record, policy: GatePolicy, *, named_by_hand: bool
) -> Opponent | Baseline | None:
    """Who the candidate is compared with; a baseline without an opponent says why there is none.

    Raises:
        InvalidInput, NotFound: the policy, or `--against`, names nothing of this registry.
        Incompatible: the two engines are not for one device.
    """
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.paired_gate import Opponent, check_same_device
    from engine_pipeline.gates.paired_result import Baseline
    from engine_pipeline.promote.release import lock_of, runtime_config
    from engine_registry.refs import ChannelRef

    if policy.paired is None:
        return None
    named = policy.paired.against
    if _CHANNEL.fullmatch(named):
        named = f"{record.model}/{record.target}/{named}"
        shell.policies.for_channel(ChannelRef.parse(named))
    is_channel = ":" not in named and named.count("/") == 2
    if is_channel and shell.registry.channels.state(ChannelRef.parse(named)).live is None:
        return Baseline(named=named, engine=None, why=f"nothing is live on {named}")
    found = shell.registry.resolve(named)
    baseline = Baseline(
        named=named,
        engine=found.engine,
        release=None if found.release is None else found.release.name,
    )
    if found.engine == record.engine and not named_by_hand:
        why = f"the candidate is itself what is live on {named}"
        return baseline.model_copy(update={"why": why})
    records = shell.registry.engines.records(found.engine)
    live = latest_record(records)
    if found.release is not None:
        live = next((r for r in records if r.digest == found.release.content.record), live)
    check_same_device(record, live)
    lock = lock_of(shell.registry, live)
    config = runtime_config(lock) if found.release is None else found.release.content.runtime_config
    return Opponent(
        baseline=baseline,
        backend=shell.backend(live.kind),
        runtime_config=config,
        runtime=live.platform.runtime,
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
    )


def still_compared_with(known: PairedResult | None, opponent: Opponent | Baseline | None) -> bool:
    """Whether a known comparison was made with who is live now."""
    from engine_pipeline.gates.paired_result import Baseline

    if opponent is None:
        return True
    now = opponent if isinstance(opponent, Baseline) else opponent.baseline
    return known is not None and known.baseline.engine == now.engine
