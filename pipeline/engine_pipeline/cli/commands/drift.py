"""`enginectl drift`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.target_choice import (
    chosen_targets,
    served_document,
    served_text,
    target_options,
)
from engine_registry.errors import EngineCIError, ExitCode
from engine_registry.refs import ChannelRef

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    Exit 10 if any differs, 11 if files on a target are not the engine's, each with both sides. A
    target that cannot be compared is named with its reason; that is no answer, and the exit code is
    the reason's if nothing else differs.
    """
    from engine_pipeline.cli.wiring_deliveries import note_drift

    ref = ChannelRef.parse(channel) if channel is not None else None
    chosen = chosen_targets(shell, ref, target, targets_file)
    if len(chosen) == 1:
        drift = _look(shell, chosen[0], deep=deep)
        note_drift(shell, [(chosen[0].name, drift)])
        return _answer([(chosen[0], drift)])
    found: list[tuple[Chosen, Drift | EngineCIError]] = []
    for one in chosen:
        try:
            found.append((one, _look(shell, one, deep=deep)))
        except EngineCIError as error:
            found.append((one, error))
    compared = [(one.name, d) for one, d in found if not isinstance(d, EngineCIError)]
    note_drift(shell, compared)
    return _answer(found)


def _look(shell: Shell, one: Chosen, *, deep: bool) -> Drift:
    from engine_pipeline.deploy.drift import find_drift

    return find_drift(shell.desk, one.definition.ref, shell.target(one.definition), deep=deep)


def _answer(found: Sequence[tuple[Chosen, Drift | EngineCIError]]) -> Answer:
    from engine_pipeline.cli.answer import Answer

    def page(out: Page) -> None:
        for one, drift in found:
            if isinstance(drift, EngineCIError):
                out.verdict("errored", f"{one.name} could not be compared: {drift.message}")
                out.line(f"  next: {drift.hint}")
            else:
                _draw(out, one, drift)

    document = {"targets": [_document(one, drift) for one, drift in found]}
    return Answer(document=document, page=page, exit_code=_exit_code([d for _, d in found]))


def _document(one: Chosen, drift: Drift | EngineCIError) -> dict[str, Any]:
    named = {"target": one.name, "channel": one.definition.channel}
    if isinstance(drift, EngineCIError):
        return {**named, "error": {"reference": drift.name, "message": drift.message}}
    return {
        **named,
        "event": drift.wanted.event,
        "release": drift.wanted.release.name,
        "engine": str(drift.wanted.engine),
        "serves": served_document(drift.reading),
        "differences": [
            {"what": d.what, "channel": d.channel, "target": d.target} for d in drift.differences
        ],
    }


def _draw(out: Page, one: Chosen, drift: Drift) -> None:
    channel = drift.wanted.channel
    if not drift.differences:
        out.verdict("ok", f"{one.name} serves {served_text(drift.reading)}, as {channel} says")
        return
    count = len(drift.differences)
    out.verdict("drift", f"{one.name} differs from {channel} in {count}")
    for difference in drift.differences:
        out.line(f"  {difference.what}")
        out.facts([("  channel", difference.channel), ("  target", difference.target)])
    deep = " --deep" if drift.is_damaged else ""
    out.line(f"  next: `enginectl deploy {channel} --target {one.name}{deep}`")


def _exit_code(found: Sequence[Drift | EngineCIError]) -> ExitCode:
    compared = [drift for drift in found if not isinstance(drift, EngineCIError)]
    if any(drift.is_damaged for drift in compared):
        return ExitCode.INTEGRITY
    if any(drift.differences for drift in compared):
        return ExitCode.DRIFT
    errors = [error for error in found if isinstance(error, EngineCIError)]
    return errors[0].exit_code if errors else ExitCode.DONE
