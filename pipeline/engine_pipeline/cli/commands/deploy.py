"""`enginectl deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.target_choice import (
    chosen_targets,
    same_target,
    served_document,
    served_text,
    target_options,
)
from engine_registry.errors import EngineCIError
from engine_registry.refs import ChannelRef

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.target_choice import Chosen
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.deploy.deploy import Deployed


@verb("deploy")
@target_options
@click.option(
    "--node",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file that describes the node that serves; default: the target's, or this machine.",
)
@click.option("--deep", is_flag=True, help="Hash what is there already; heal it if damaged.")
@click.option("--rebind", is_flag=True, help="Let the target follow another channel from now on.")
def command(
    shell: Shell,
    channel: str | None,
    target: str | None,
    targets_file: str | None,
    node: Path | None,
    deep: bool,
    rebind: bool,
) -> Answer:
    """Make targets serve what is live on their channel, and read back that they do.

    What was served before goes on until the new engine is proven. One after the other; the first
    that cannot be done ends the command, and those after it are not touched. Doing it again
    changes nothing.
    """
    if channel is None and target is None:
        raise click.UsageError("name a channel, a target, or both")
    ref = ChannelRef.parse(channel) if channel is not None else None
    chosen = chosen_targets(shell, ref, target, targets_file)
    done: list[tuple[Chosen, Deployed]] = []
    for one in chosen:
        try:
            done.append((one, _deploy(shell, one, node=node, deep=deep, rebind=rebind)))
        except EngineCIError as error:
            if target is not None or len(chosen) > 1:
                error.hint = same_target(error.hint, one.name, targets_file)
            _tell_the_rest(error, one, chosen, done)
            raise
    return _answer(done)


def _deploy(shell: Shell, one: Chosen, *, node: Path | None, deep: bool, rebind: bool) -> Deployed:
    from engine_pipeline.cli.wiring_cache import claiming
    from engine_pipeline.deploy.deploy import deploy

    return deploy(
        shell.desk,
        one.definition.ref,
        shell.target(one.definition),
        backend=shell.backend,
        fit=shell.fit(one.definition, node),
        progress=shell.progress,
        claim=claiming(shell, one.definition),
        rebind=rebind,
        deep=deep,
    )


def _tell_the_rest(
    error: EngineCIError, failed: Chosen, chosen: tuple[Chosen, ...], done: list[tuple[Chosen, Any]]
) -> None:
    """Say in the error what else was or was not deployed."""
    if len(chosen) == 1:
        return
    before = ", ".join(one.name for one, _ in done) or "none"
    after = ", ".join(one.name for one in chosen[len(done) + 1 :]) or "none"
    error.message = f"target {failed.name}: {error.message} (done before: {before}; not: {after})"
    error.args = (error.message,)


def _answer(done: list[tuple[Chosen, Deployed]]) -> Answer:
    from engine_pipeline.cli.answer import Answer

    document = {
        "targets": [
            {
                "target": one.name,
                "changed": deployed.changed,
                "channel": deployed.deployment.channel,
                "event": deployed.deployment.event,
                "before": served_document(deployed.before),
                "after": served_document(deployed.after),
                "findings": [
                    {"rule": f.rule, "holds": f.holds, "says": f.says} for f in deployed.findings
                ],
            }
            for one, deployed in done
        ]
    }

    def page(out: Page) -> None:
        for one, deployed in done:
            now = served_text(deployed.after)
            if not deployed.changed:
                out.verdict("unchanged", f"{one.name} serves {now} already")
                continue
            out.verdict("ok", f"{one.name} serves {now}")
            deployment = deployed.deployment
            out.facts(
                [
                    ("channel", f"{deployment.channel}, event {deployment.event}"),
                    ("before", served_text(deployed.before)),
                    ("image", deployment.release.content.serving_image),
                ]
            )

    return Answer(document=document, page=page)
