"""`enginectl check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.findings import Finding
    from engine_registry.record import Record


@verb("check")
@click.argument("engine")
@click.option(
    "--node",
    default="this",
    show_default=True,
    metavar="FILE|this",
    help="JSON file that describes the node, or this machine.",
)
def command(shell: Shell, engine: str, node: str) -> Answer:
    """Would ENGINE load on a node? One line per rule, with both sides.

    Rules: SKU, SM, ranks, driver, TensorRT, TensorRT-LLM, memory; the same that promote, rollback
    and deploy use, without what a channel accepts untested. Exit 6 if one is broken.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.lookup import latest_record
    from engine_registry.errors import ExitCode

    digest = shell.registry.resolve_engine(engine)
    findings = _findings(shell, latest_record(shell.registry.engines.records(digest)), node)
    broken = [finding for finding in findings if not finding.holds]
    document = {
        "engine": str(digest),
        "node": node,
        "fits": not broken,
        "rules": [
            {"rule": f.rule, "holds": f.holds, "says": f.says, "hint": f.hint or None}
            for f in findings
        ],
    }

    def page(out: Page) -> None:
        word = "failed" if broken else "ok"
        out.verdict(word, f"engine {digest.short} {'does not fit' if broken else 'fits'} {node}")
        for finding in findings:
            word = "pass" if finding.holds else "FAIL"
            out.wrapped(f"{word} {finding.rule}: {finding.says}", "  ")
            if not finding.holds and finding.hint:
                out.line(f"       next: {finding.hint}")

    code = ExitCode.INCOMPATIBLE if broken else ExitCode.DONE
    return Answer(document=document, page=page, exit_code=code)


def _findings(shell: Shell, record: Record, node: str) -> tuple[Finding, ...]:
    from engine_pipeline.compat.fit import decide_fit
    from engine_pipeline.deploy.node import fit_on_machine, read_node
    from engine_pipeline.promote.nodes import memory_to_load

    platform = record.platform
    needed = memory_to_load(shell.registry, record.engine, record.digest)
    if node == "this":
        return fit_on_machine(platform, shell.machine, serves_its_image=True, needed_bytes=needed)
    return decide_fit(platform, read_node(Path(node)), needed_bytes=needed)
