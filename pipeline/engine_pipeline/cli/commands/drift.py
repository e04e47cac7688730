"""`enginectl drift`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.next_command import on_the_same
from engine_pipeline.cli.options import verb
from engine_pipeline.cli.target_choice import (
    chosen_targets,
    same_target,
    served_document,
    served_text,
    target_options,
)
from engine_registry.errors import EngineCIError, ExitCode
from engine_registry.refs import ChannelRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        return _answer([(chosen[0], drift)], shell.named, targets_file)
    found: list[tuple[Chosen, Drift | EngineCIError]] = []
    for one in chosen:
        try:
            found.append((one, _look(shell, one, deep=deep)))
        except EngineCIError as error:
            found.append((one, error))
    compared = [(one.name, d) for one, d in found if not isinstance(d, EngineCIError)]
    note_drift(shell, compared)
    return _answer(found, shell.named, targets_file)


def _look(shell: Shell, one: Chosen, *, deep: bool) -> Drift:
    from engine_pipeline.deploy.drift import find_drift

    return find_drift(shell.desk, one.definition.ref, shell.target(one.definition), deep=deep)


def _answer(
    found: Sequence[tuple[Chosen, Drift | EngineCIError]],
    named: Mapping[str, str],
    targets_file: str | None,
) -> Answer:
    from engine_pipeline.cli.answer import Answer

    def page(out: Page) -> None:
        for one, drift in found:
            if isinstance(drift, EngineCIError):
                out.verdict("errored", f"{one.name} could not be compared: {drift.message}")
                out.line(f"  next: {on_the_same(drift.hint, named)}")
                continue
            _draw(out, one, drift)
            if drift.differences:
                hint = same_target(_next(drift), one.name, targets_file)
                out.line(f"  next: {on_the_same(hint, named)}")

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


def _next(drift: Drift) -> str:
    deep = " --deep" if drift.is_damaged else ""
    command = f"`enginectl deploy {drift.wanted.channel}{deep}`"
    fence = drift.unknown_event
    if fence is None:
        return command
    rebind = command.replace("deploy ", "deploy --rebind ", 1)
    return (
        f"event {fence.event} ({fence.event_digest.short}) was deployed there, and is not in this "
        f"registry's log; if this registry is the right one from now on: {rebind}"
    )


def _exit_code(found: Sequence[Drift | EngineCIError]) -> ExitCode:
    compared = [drift for drift in found if not isinstance(drift, EngineCIError)]
    if any(drift.is_damaged for drift in compared):
        return ExitCode.INTEGRITY
    if any(drift.differences for drift in compared):
        return ExitCode.DRIFT
    errors = [error for error in found if isinstance(error, EngineCIError)]
    return errors[0].exit_code if errors else ExitCode.DONE
