"""`enginectl hold`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import reason, verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.refs import ReleaseRef


@verb("hold")
@click.argument("name", metavar="MODEL/TARGET/CHANNEL|MODEL/TARGET:N")
@click.option("--lift", is_flag=True, help="End the hold.")
@reason(required=True)
def command(shell: Shell, name: str, lift: bool, reason: str) -> Answer:
    """Keep promotions off what is live on a channel, or garbage collection off a release.

    A rollback puts its channel on hold by itself. A release on hold is kept by every `gc`; one that
    lies in the trash is put back. A hold lasts until somebody lifts it:
    `enginectl hold NAME --lift --reason …`.
    """
    from engine_pipeline.cli.known_channel import known_channel
    from engine_pipeline.cli.say_channel import moved_answer
    from engine_pipeline.promote.say import hold, lift_hold
    from engine_registry.refs import ReleaseRef

    if ":" in name:
        return _release(shell, ReleaseRef.parse(name), reason, lift=lift)
    ref = known_channel(shell, name)
    if lift:
        moved = lift_hold(shell.desk, ref, reason=reason)
        return moved_answer(moved, f"{ref} is off hold", f"{ref} was not on hold")
    moved = hold(shell.desk, ref, reason=reason)
    return moved_answer(moved, f"{ref} is on hold", f"{ref} is unchanged")


def _release(shell: Shell, ref: ReleaseRef, reason: str, *, lift: bool) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when
    from engine_pipeline.promote.keep import hold_release, let_release_go

    act = let_release_go if lift else hold_release
    kept = act(shell.desk, ref, reason=reason)
    document = {
        "changed": kept.changed,
        "release": kept.release.name,
        "restored_files": kept.restored_files,
        "hold": kept.hold.model_dump(mode="json") if kept.hold else None,
    }

    def page(out: Page) -> None:
        if kept.hold is None:
            out.verdict("unchanged", f"{kept.release.name} was not on hold")
            return
        did = "off hold: gc decides again" if lift else "on hold: no gc removes it"
        out.verdict("ok", f"{kept.release.name} is {did}")
        back = f"{kept.restored_files} files out of the trash" if kept.restored_files else None
        out.facts(
            [
                ("engine", kept.release.content.engine),
                ("restored", back),
                ("by", f"{kept.hold.actor.name} at {when(kept.hold.at)}"),
            ]
        )

    return Answer(document=document, page=page)
