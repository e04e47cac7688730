"""What `notify run` and `mirror` share: one run or a watch, and how its outcome is shown."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine_registry.errors import EngineCIError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.policy import Policies
    from engine_pipeline.tracking.deliver import Run
    from engine_pipeline.tracking.outbox import Outbox
    from engine_pipeline.tracking.port import Destination

F = TypeVar("F", bound="Callable[..., Any]")


def _span(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    from engine_pipeline.promote.duration import read_duration

    try:
        span = read_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    if not span:
        raise click.BadParameter("want at least 1s", ctx, param)
    return span


def run_options(function: F) -> F:
    """`--watch`, `--every`, `--now`, `--rescan`, `--state-dir`."""
    for option in (
        click.option(
            "--state-dir",
            type=click.Path(file_okay=False),
            help="Where what is due is kept [env: ENGINECTL_STATE; default: "
            "~/.local/state/enginectl].",
        ),
        click.option("--rescan", is_flag=True, help="Read the whole registry again."),
        click.option("--now", "insist", is_flag=True, help="Do not wait for a back-off to end."),
        click.option(
            "--every",
            metavar="SPAN",
            default="10s",
            show_default=True,
            callback=_span,
            help="With --watch: pause between two runs.",
        ),
        click.option("--watch", is_flag=True, help="Go on until stopped (SIGTERM or Ctrl-C)."),
    ):
        function = option(function)
    return function


def deliver(
    shell: Shell,
    outbox: Outbox,
    destinations: Sequence[Destination],
    *,
    policies: Policies | None,
    watch: bool,
    every: timedelta,
    insist: bool,
    rescan: bool,
) -> Answer:
    """Deliver what is due, once or until stopped; exit 9 if something waits, 11 if damaged."""
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.tracking.deliver import Pace, run_once
    from engine_pipeline.tracking.feed import Feed

    pace = Pace(clock=utc_now, sleep=time.sleep)

    def once(*, rescan: bool) -> Run:
        feed = Feed(shell.registry, outbox, utc_now, policies=policies, rescan=rescan)
        return run_once(feed, outbox, destinations, pace, insist=insist)

    with outbox.held():
        run = once(rescan=rescan)
        if watch:
            run = _watch(shell, run, lambda: once(rescan=False), every)
    outbox.close()
    return _answer(run, is_watched=watch)


def _watch(shell: Shell, run: Run, once: Callable[[], Run], every: timedelta) -> Run:
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        _say(shell, run)
        while not stop.wait(every.total_seconds()):
            try:
                run = once()
            except EngineCIError as error:
                shell.progress.note(f"not delivered: {error.message}")
                continue
            _say(shell, run)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
    return run


def _say(shell: Shell, run: Run) -> None:
    for problem in (*filter(None, [run.unreachable]), *run.damaged):
        shell.progress.note(f"not readable: {problem}")
    for tally in run.tallies:
        if tally.sent or tally.abandoned:
            shell.progress.note(
                f"{tally.destination}: {tally.sent} delivered, {tally.abandoned} given up, "
                f"{tally.waiting} waiting"
            )
        if tally.waiting and tally.error:
            shell.progress.note(f"{tally.destination}: {tally.waiting} waiting: {tally.error}")


def _answer(run: Run, *, is_watched: bool) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when

    document = {
        "new_facts": run.new_facts,
        "unreachable": run.unreachable,
        "damaged": list(run.damaged),
        "destinations": [
            {
                "name": t.destination,
                "delivered": t.sent,
                "given_up": t.abandoned,
                "waiting": t.waiting,
                "rests_until": t.rests_until.isoformat() if t.rests_until else None,
                "error": t.error,
            }
            for t in run.tallies
        ],
    }

    def page(out: Page) -> None:
        is_behind = "waiting" if run.is_behind else "ok"
        out.verdict(is_behind, f"{run.new_facts} new in the registry")
        rows = [
            (t.destination, t.sent, t.abandoned, t.waiting, when(t.rests_until))
            for t in run.tallies
        ]
        out.table(("destination", "delivered", "given up", "waiting", "rests until"), rows)
        for tally in run.tallies:
            if tally.waiting and tally.error:
                out.line(f"  {tally.destination}: {tally.error}")
        for problem in (*filter(None, [run.unreachable]), *run.damaged):
            out.line(f"  not readable: {problem}")

    code = ExitCode.DONE
    if not is_watched and (run.is_behind or run.damaged):
        code = ExitCode.UNAVAILABLE if run.is_behind else ExitCode.INTEGRITY
    return Answer(document=document, page=page, exit_code=code)
