"""`enginectl mirror`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.delivering import run_options
from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from datetime import timedelta

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("mirror")
@click.argument("system", type=click.Choice(["mlflow"]))
@click.option(
    "--uri",
    metavar="URL",
    help="Tracking server [env: MLFLOW_TRACKING_URI; credentials: MLflow's own variables].",
)
@click.option(
    "--prefix",
    metavar="NAME",
    default="",
    help="Of the names there, for several registries in one server.",
)
@run_options
def command(
    shell: Shell,
    system: str,  # noqa: ARG001
    uri: str | None,
    prefix: str,
    watch: bool,
    every: timedelta,
    insist: bool,
    rescan: bool,
    state_dir: str | None,
) -> Answer:
    """Bring an MLflow server up to this registry: runs, models, versions, aliases.

    Writes there and decides nothing by what it finds; deletes nothing. Whatever the server missed
    is written when it is back. Exit 9 if something could not be written yet.
    """
    from engine_pipeline.cli.delivering import deliver
    from engine_pipeline.cli.wiring_deliveries import mlflow_mirror

    mirror, outbox = mlflow_mirror(shell, uri, prefix, state_dir)
    return deliver(
        shell,
        outbox,
        [mirror],
        policies=None,
        watch=watch,
        every=every,
        insist=insist,
        rescan=rescan,
    )
