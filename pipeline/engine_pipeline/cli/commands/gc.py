"""`enginectl gc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.times import SPAN

if TYPE_CHECKING:
    from datetime import timedelta

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import Shell


@verb("gc")
@click.option("--yes", is_flag=True, help="Do it: move what nothing keeps into the trash.")
@click.option(
    "--purge", is_flag=True, help="With --yes: then remove for good what lay there long enough."
)
@click.option(
    "--grace",
    type=SPAN,
    default="1d",
    show_default=True,
    help="How long anything new, used or discarded is left alone: longer than any build or gate.",
)
def command(shell: Shell, yes: bool, purge: bool, grace: timedelta) -> Answer:
    """Remove engines and releases that nothing keeps: a plan, then the trash, then for good.

    Prints what would be removed with its bytes, and what is kept with the reasons, and changes
    nothing; `--output json` has all of it too. How much is kept is `retention:` in channels.yaml; a
    product without one keeps everything. Whatever is live, in reach of a rollback, on hold or
    approved stays in any case.

    With --yes it goes into the trash, from where anything that is named again comes back. With
    --yes --purge, what has lain in the trash for the grace period is removed for good as well. Safe
    beside builds and promotions, and to run again after it was stopped. Where the disk is so full
    that nothing can be moved, --purge empties the trash first.
    """
    from engine_pipeline.cli.say_gc import gc_answer
    from engine_registry.errors import Unavailable
    from engine_registry.gc import Collector

    collector = Collector(
        shell.registry,
        shell.policies.retention,
        actor=shell.actor,
        grace=grace,
        say=lambda text: shell.progress.phase("gc", text),
    )
    before = None
    try:
        discarded = collector.discard() if yes else None
    except Unavailable as error:
        if error.name != "store-full" or not purge:
            raise
        shell.progress.note(f"purging first: {error.message}")
        before = collector.purge()
        discarded = collector.discard()
    plan = discarded.plan if discarded else collector.plan()
    purged = collector.purge() if yes and purge else None
    if before is not None and purged is not None:
        purged.purged_files += before.purged_files
        purged.purged_bytes += before.purged_bytes
    shell.close()
    return gc_answer(plan, discarded, purged, url=shell.registry_url, grace=grace, purge=purge)
