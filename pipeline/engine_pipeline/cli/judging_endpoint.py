"""From `gate --endpoint` to reports on a server that somebody else runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import Report

_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedEndpoint:
    """What the command line says of an endpoint."""

    url: str
    model: str | None
    api_key_env: str | None


def judge_running(
    shell: Shell,
    asked: AskedEndpoint,
    gates: Sequence[str],
    *,
    suite: str | None,
    min_score: float,
) -> list[Report]:
    """A report for each gate, or for the suite.

    Raises:
        UsageError: no model, or neither gates nor a suite, or both.
        InvalidInput, Unavailable: as `external` and `judge_endpoint`.
    """
    from engine_pipeline.cli.endpoints import judge_of
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_embeddings import embeddings_of
    from engine_pipeline.gates.endpoint_gate import judge_endpoint
    from engine_pipeline.gates.external import external, key_of
    from engine_pipeline.gates.policy import check_fits

    if asked.model is None:
        raise click.UsageError("--endpoint needs --model NAME, as its /v1/models lists it")
    if gates and suite is not None:
        raise click.UsageError(
            f"--gate {gates[0]} and --suite {suite} exclude each other: a gate names its own suite"
        )
    if not gates and suite is None:
        raise click.UsageError("--endpoint needs a --gate of channels.yaml, or a --suite")
    key = key_of(asked.api_key_env, os.environ)
    address = urlsplit(asked.url)
    if key is not None and address.scheme == "http" and address.hostname not in _THIS_MACHINE:
        shell.progress.note(f"{address.hostname}: the key goes there unencrypted, over http")
    policies = _policies(shell, gates, suite, min_score)
    suites = {name: shell.suite(policy.suite) for name, policy in policies.items()}
    workloads = {name: shell.workloads(policy.lanes) for name, policy in policies.items()}
    for name, policy in policies.items():
        check_fits(policy, suites[name])
    endpoint = external(asked.url, asked.model, api_key=key)
    reports = []
    for name, policy in policies.items():
        reports.append(
            judge_endpoint(
                endpoint=endpoint,
                gate=name,
                policy=policy,
                suite=suites[name],
                progress=shell.progress,
                clock=utc_now,
                workdir=shell.cache_dir / "gates",
                workloads=workloads[name],
                judge=judge_of(policy.judge),
                embeddings=embeddings_of(
                    shell, policy.embeddings, load_timeout_s=policy.load_timeout_s
                ),
            )
        )
    return reports


def _policies(
    shell: Shell, gates: Sequence[str], suite: str | None, min_score: float
) -> dict[str, GatePolicy]:
    from engine_pipeline.gates.policy import GatePolicy, QualityBars

    if suite is None:
        return {name: shell.policies.gate(name) for name in gates}
    return {suite: GatePolicy(suite=suite, quality=QualityBars(min_score=min_score))}
