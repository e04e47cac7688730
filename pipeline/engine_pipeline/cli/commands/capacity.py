"""`enginectl capacity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.capacity.estimate import Capacity, Sizing
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("capacity")
@click.argument("spec_or_engine", metavar="SPEC|ENGINE")
@click.option("--sku", help="Another SKU than the one it is for.")
def command(shell: Shell, spec_or_engine: str, sku: str | None) -> Answer:
    """How much memory an engine needs, and how large a batch fits its SKU.

    An estimate for the heaviest rank: weights, KV cache per token and per sequence, activations and
    workspace, the largest batch of full-length sequences, and what the limits ask for. Exit 6 if
    not even one sequence fits.
    """
    from dataclasses import asdict

    from engine_pipeline.capacity.verdict import capacity_on
    from engine_pipeline.cli.answer import Answer
    from engine_registry.errors import ExitCode, InvalidInput

    sizing, target = _sizing(shell, spec_or_engine)
    target = sku or target
    found = capacity_on(sizing, target)
    if found is None:
        raise InvalidInput(
            f"no memory figure for {target}: capacity is estimated for GPUs",
            hint="name a GPU with --sku, such as --sku h100-sxm-80gb",
            reference="sku-without-memory",
        )
    document = {
        "sku": target,
        "loads": found.loads,
        "holds_limits": found.holds_limits,
        **asdict(found),
    }

    def page(out: Page) -> None:
        _draw(out, found, sizing, target)

    code = ExitCode.DONE if found.loads else ExitCode.INCOMPATIBLE
    return Answer(document=document, page=page, exit_code=code)


def _sizing(shell: Shell, text: str) -> tuple[Sizing, str]:
    """What is estimated, and the SKU it is for."""
    from engine_pipeline.capacity.estimate import sizing_of_spec
    from engine_pipeline.cli.locked import locked_spec
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.promote.release import lock_of
    from engine_registry.errors import InvalidInput

    if Path(text).suffix in {".yaml", ".yml"}:
        lock, _ = locked_spec(shell, Path(text))
    else:
        digest = shell.registry.resolve_engine(text)
        lock = lock_of(shell.registry, latest_record(shell.registry.engines.records(digest)))
    if lock.shape is None:
        raise InvalidInput(
            f"{lock.spec.name}: its lock says nothing of the model's shape",
            hint="capacity is estimated for checkpoints with a config.json; lock the spec again",
            reference="shape-unknown",
        )
    return sizing_of_spec(lock.spec, lock.shape), lock.spec.target.sku


def _draw(out: Page, found: Capacity, sizing: Sizing, target: str) -> None:
    limits = sizing.limits
    if not found.loads:
        out.verdict("failed", f"does not fit {target}: not one sequence of full length")
    elif not found.holds_limits:
        out.verdict("ok", f"loads on {target}; the limits ask for more than fits at once")
    else:
        out.verdict("ok", f"loads on {target} and holds what the limits ask for")
    out.facts(
        [
            ("parameters", f"{found.parameters / 1e9:.2f} billion"),
            ("memory of a board", _gib(found.memory_bytes)),
            ("needed to load", _gib(found.needed_bytes)),
            ("weights", _gib(found.weights_bytes)),
            ("activations, workspace", _gib(found.activation_bytes)),
            ("reserve", _gib(found.reserve_bytes)),
            ("KV cache", f"{_gib(found.pool_bytes)}, {found.pool_tokens:,} tokens"),
            ("KV cache per token", f"{found.cache_bytes_per_token:,} bytes"),
            ("KV cache per sequence", _gib(found.cache_bytes_per_sequence)),
            (
                "limits ask for",
                f"{_gib(found.asked_bytes)}: {limits.max_batch_size} sequences of "
                f"{limits.max_sequence_tokens:,} tokens",
            ),
            ("largest batch", f"{found.largest_batch} sequences of full length"),
            ("longest sequence", f"{found.largest_sequence_tokens:,} tokens at full batch"),
        ]
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f} GiB"
