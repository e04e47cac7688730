"""From a recorded engine to its report: shared by the commands that judge."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.report import Device, Report
    from engine_pipeline.promote.findings import Wanted
    from engine_pipeline.trust.signers import Signer
    from engine_registry.digest import Digest
    from engine_registry.record import Record
    from engine_registry.refs import ProductRef


def judge(
    shell: Shell,
    record: Record,
    name: str,
    *,
    again: bool,
    key: Signer | None,
    against: str | None = None,
    parents: Sequence[str] = (),
) -> tuple[Report, Digest, bool]:
    """The report of one gate, its digest, and whether it was there already.

    Args:
        shell: this machine.
        record: of the engine.
        name: of the gate.
        again: judge even if a report decides.
        key: signs the report, if there is one.
        against: whom to compare speed with instead of whom the policy names.
        parents: whom to compare answers with instead of whom the policy names.
    """
    from engine_pipeline.cli.endpoints import judge_of
    from engine_pipeline.cli.opponent import opponent_for, still_compared_with, with_against
    from engine_pipeline.cli.parents import parents_for, still_held_to, with_parents
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_embeddings import embeddings_of
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.gates.run import run_gate
    from engine_pipeline.promote.findings import Wanted
    from engine_pipeline.promote.release import lock_of, runtime_config
    from engine_pipeline.trust.signatures import sign_report

    policy = with_against(shell.policies.gate(name), record, name, against)
    policy = with_parents(policy, name, parents)
    suite = shell.suite(policy.suite)
    device = shell.device(record)
    shell.registry.engines.check_engine(record.engine)
    opponent = opponent_for(shell, record, policy, named_by_hand=against is not None)
    kin = parents_for(shell, record, policy)
    if not again:
        wanted = Wanted(policy=policy.digest, suite=suite.digest)
        known = _known(shell, record, name, wanted, device)
        if (
            known is not None
            and still_compared_with(known[0].paired, opponent)
            and still_held_to(known[0].parity, kin)
            and _leaves_out_the_same(known[0])
            and _may_be_reused(shell, record.engine, known[1], key)
        ):
            shell.progress.note(f"{name}: reused report {known[1].short}; --again judges anew")
            return *known, True
    lock = lock_of(shell.registry, record)
    report, attached = run_gate(
        registry=shell.registry,
        engine=record.engine,
        gate=name,
        policy=policy,
        suite=suite,
        backend=shell.backend(record.kind),
        runtime_config=runtime_config(lock),
        device=device,
        progress=shell.progress,
        clock=utc_now,
        workdir=shell.cache_dir / "gates",
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
        opponent=opponent,
        parents=kin,
        workloads=shell.workloads(policy.lanes),
        judge=judge_of(policy.judge),
        embeddings=embeddings_of(shell, policy.embeddings, load_timeout_s=policy.load_timeout_s),
    )
    if key is not None:
        sign_report(shell.registry, record.engine, attached, key)
    return report, attached, False


def refuse_spec(named: str) -> None:
    """Refuse the path of a spec where an engine is wanted: it reads like a channel's name."""
    from engine_registry.errors import InvalidInput

    if Path(named).suffix in {".yaml", ".yml"}:
        raise InvalidInput(
            f"{named}: a spec, want an engine",
            hint=f"build it, or find what was built: `enginectl build {shlex.quote(named)}` "
            "prints its engine",
            reference="spec-not-engine",
        )


def gates_of(shell: Shell, product: ProductRef) -> tuple[str, ...]:
    """Every gate that a channel of the product asks for, each once; at least one.

    Raises:
        NotFound: no policy covers the product.
        InvalidInput: none of its channels asks for a gate.
    """
    from engine_registry.errors import InvalidInput

    policy = shell.policies.for_product(product)
    gates = tuple(dict.fromkeys(gate for c in policy.channels.values() for gate in c.gates))
    if not gates:
        raise InvalidInput(
            f"no channel of {product} asks for a gate; channels.yaml has "
            f"{', '.join(sorted(shell.policies.gates))}",
            hint="name one of them with --gate",
            reference="no-gate-asked-for",
        )
    return gates


def _known(
    shell: Shell, record: Record, name: str, wanted: Wanted, device: Device
) -> tuple[Report, Digest] | None:
    """The report that decides, if its server had the settings that this build asks for.

    Builds of the same bytes may each be served in their own way: where the newest report is of
    another build's, this build's own is looked for.
    """
    from engine_pipeline.gates.report import runtime_digest
    from engine_pipeline.promote.evidence import deciding_report
    from engine_pipeline.promote.release import lock_of, runtime_config

    known = deciding_report(shell.registry, record.engine, name, wanted, device)
    if known is None or known[0].runtime_config is None:
        return known
    own = replace(wanted, runtime=runtime_digest(runtime_config(lock_of(shell.registry, record))))
    if not own.takes(known[0].runtime_config):
        known = deciding_report(shell.registry, record.engine, name, own, device)
    return known if known is not None and own.takes(known[0].runtime_config) else None


def _leaves_out_the_same(report: Report) -> bool:
    """Whether every case that the report left out is still in quarantine."""
    from engine_pipeline.cli.wiring import utc_now

    return report.quarantine_ends is None or utc_now().date() <= report.quarantine_ends


def _may_be_reused(shell: Shell, engine: Digest, report: Digest, key: Signer | None) -> bool:
    """Whether a report can stand for a run of the gate: who signs has judged."""
    from engine_pipeline.trust.policy import Role
    from engine_pipeline.trust.signatures import is_signed_with

    return key is None or is_signed_with(shell.registry, engine, Role.GATE, report, key.public)
