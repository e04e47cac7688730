"""`enginectl notify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.delivering import run_options
from engine_pipeline.cli.options import verb
from engine_registry.errors import ExitCode, InvalidInput

if TYPE_CHECKING:
    from datetime import timedelta

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.tracking.port import NotSent


@verb("notify")
@click.argument("action", type=click.Choice(["run", "test", "log"]))
@click.argument("name", required=False)
@click.option("--last", type=click.IntRange(1, 10_000), default=20, help="With log: so many.")
@run_options
def command(
    shell: Shell,
    action: str,
    name: str | None,
    last: int,
    watch: bool,
    every: timedelta,
    insist: bool,
    rescan: bool,
    state_dir: str | None,
) -> Answer:
    """Tell the receivers of notifications.yaml what happened in the registry.

    `run` delivers what is due (exit 9 if something still waits), `test NAME` sends one signed test
    call, `log [NAME]` shows the newest attempts. No other command waits for a receiver.
    """
    match action:
        case "test":
            return _test(shell, name)
        case "log":
            return _log(shell, name, last, state_dir)
        case _:
            return _run(shell, name, watch, every, insist, rescan, state_dir)


def _run(
    shell: Shell,
    name: str | None,
    watch: bool,
    every: timedelta,
    insist: bool,
    rescan: bool,
    state_dir: str | None,
) -> Answer:
    from engine_pipeline.cli.delivering import deliver
    from engine_pipeline.cli.wiring_deliveries import NOTIFY, notifications, outbox, webhooks
    from engine_pipeline.tracking.facts import Kind

    settings = notifications(shell)
    asks = any(Kind.APPROVAL_NEEDED in one.events for one in settings.destinations.values())
    box = outbox(shell, NOTIFY, state_dir)
    box.register(settings.destinations)  # of those that are not delivered to now, too
    return deliver(
        shell,
        box,
        webhooks(shell, settings, [name] if name else ()),
        policies=shell.policies if asks else None,
        watch=watch,
        every=every,
        insist=insist,
        rescan=rescan,
    )


def _test(shell: Shell, name: str | None) -> Answer:
    from uuid import uuid4

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.cli.wiring_deliveries import notifications, webhooks
    from engine_pipeline.tracking.facts import Fact, Kind
    from engine_pipeline.tracking.port import Sent

    if name is None:
        raise InvalidInput(
            "no destination given",
            hint="run `enginectl notify test NAME` with a name of notifications.yaml",
            reference="destination-missing",
        )
    (webhook,) = webhooks(shell, notifications(shell), [name])
    now, delivery = utc_now(), str(uuid4())
    fact = Fact(
        id=f"test/{delivery}",
        kind=Kind.TEST,
        at=now,
        actor=shell.actor,
        text=f"test call to {name} by {shell.actor.name}: nothing happened",
    )
    result = webhook.deliver(fact, delivery=delivery, attempt=1)
    is_sent = isinstance(result, Sent)
    hint = None if isinstance(result, Sent) else _after(name, result)
    document = {
        "destination": name,
        "place": webhook.place,
        "delivery": delivery,
        "delivered": is_sent,
        "detail": result.detail,
        "next": hint,
    }

    def page(out: Page) -> None:
        out.verdict("ok" if is_sent else "failed", f"{name}: {result.detail}")
        out.facts([("address", webhook.place), ("delivery", delivery), ("next", hint)])

    code = ExitCode.DONE if is_sent else ExitCode.UNAVAILABLE
    return Answer(document=document, page=page, exit_code=code)


def _after(name: str, result: NotSent) -> str:
    """What to do about a test call that was not taken."""
    where = "notifications.yaml or the environment" if result.is_final else "the receiver"
    return f"put {where} right, then `enginectl notify test {name}` again"


def _log(shell: Shell, name: str | None, last: int, state_dir: str | None) -> Answer:
    from dataclasses import asdict

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.wiring_deliveries import NOTIFY, notifications, outbox

    box = outbox(shell, NOTIFY, state_dir)
    entries = box.log(name, last)
    box.close()
    if name is not None and not entries:
        notifications(shell).named(name)  # of one that is there no more the log is still shown

    def page(out: Page) -> None:
        if not entries:
            out.line("nothing was delivered yet")
            return
        for e in entries:
            out.verdict(
                "ok" if e.outcome == "sent" else "failed",
                f"{when(e.at)} {e.destination}: {e.outcome} at attempt {e.attempt}: {e.detail}",
            )
            out.line(f"    {e.fact}, delivery {e.delivery}")

    document = {"log": [{**asdict(e), "at": e.at.isoformat()} for e in entries]}
    return Answer(document=document, page=page)
