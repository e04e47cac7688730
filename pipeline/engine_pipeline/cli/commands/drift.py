"""`enginectl drift`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.target_choice import (
    chosen_targets,
    served_document,
    served_text,
    target_options,
)
from engine_registry.refs import ChannelRef

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.target_choice import Chosen
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.deploy.drift import Drift


@verb("drift")
@target_options
@click.option("--deep", is_flag=True, help="Hash every engine file on the target again.")
def command(
    shell: Shell, channel: str | None, target: str | None, targets_file: str | None, deep: bool
) -> Answer:
    """Compare what targets serve with what is live on their channels; changes nothing.

    Exit 10 if any differs, 11 if files on a target are not the engine's, each with both sides; 9
    if a target cannot be asked, which is no answer.
    """
    from engine_pipeline.deploy.drift import find_drift

    ref = ChannelRef.parse(channel) if channel is not None else None
    found = [
        (one, find_drift(shell.desk, one.definition.ref, shell.target(one.definition), deep=deep))
        for one in chosen_targets(shell, ref, target, targets_file)
    ]
    return _answer(found)


def _answer(found: list[tuple[Chosen, Drift]]) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_registry.errors import ExitCode

    document = {
        "targets": [
            {
                "target": one.name,
                "channel": drift.wanted.channel,
                "event": drift.wanted.event,
                "release": drift.wanted.release.name,
                "engine": str(drift.wanted.engine),
                "serves": served_document(drift.reading),
                "differences": [
                    {"what": d.what, "channel": d.channel, "target": d.target}
                    for d in drift.differences
                ],
            }
            for one, drift in found
        ]
    }

    def page(out: Page) -> None:
        for one, drift in found:
            if not drift.differences:
                served = served_text(drift.reading)
                out.verdict("ok", f"{one.name} serves {served}, as {drift.wanted.channel} says")
                continue
            count = len(drift.differences)
            things = "thing" if count == 1 else "things"
            out.verdict(
                "drift", f"{one.name} differs from {drift.wanted.channel} in {count} {things}"
            )
            for difference in drift.differences:
                out.line(f"  {difference.what}")
                out.facts([("  channel", difference.channel), ("  target", difference.target)])
            out.line(f"  next: `enginectl deploy {drift.wanted.channel} --target {one.name}`")

    code = ExitCode.DONE
    if any(drift.differences for _, drift in found):
        damaged = any(drift.is_damaged for _, drift in found)
        code = ExitCode.INTEGRITY if damaged else ExitCode.DRIFT
    return Answer(document=document, page=page, exit_code=code)
