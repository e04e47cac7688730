"""`enginectl status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_registry.errors import ExitCode, IntegrityError, NotFound

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.errors import EngineCIError
    from engine_registry.events import ChannelState
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


@verb("status")
@click.argument("name", required=False, metavar="[MODEL/TARGET[/CHANNEL]]")
def command(shell: Shell, name: str | None) -> Answer:
    """What is live where: all channels, those of one MODEL/TARGET, or one channel.

    A channel that cannot be read does not hide the others: it is named below them, with what is
    wrong, and the exit code is 11, or 8 if nothing is damaged but something is missing.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.next_command import on_the_same
    from engine_pipeline.cli.say_channel import state_document
    from engine_pipeline.cli.say_damaged import draw_damaged

    found = [_look(shell, ref) for ref in _channels(shell, name)]
    rows = [(one.state, one.release) for one in found if one.state is not None]
    broken = [(one.ref, one.error) for one in found if one.error is not None]
    if not rows and len(broken) == 1 and len(found) == 1:
        raise broken[0][1]
    document = {
        "channels": [
            {**state_document(s), "release": r.model_dump(mode="json") if r else None}
            for s, r in rows
        ],
        "damaged": [
            {"channel": str(ref), "reference": e.name, "message": e.message, "hint": e.hint}
            for ref, e in broken
        ],
    }

    def page(out: Page) -> None:
        if rows:
            _draw(out, rows)
        elif not broken:
            out.line(f"no channels yet in {shell.registry_url}")
            out.line(f"next: `{_first_step(shell)}`")
        said = ((f"{ref}: {e.message}", on_the_same(e.hint, shell.named)) for ref, e in broken)
        draw_damaged(out, said)

    codes = {error.exit_code for _, error in broken}
    return Answer(document=document, page=page, exit_code=max(codes, default=ExitCode.DONE))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """A channel as far as it can be read, and what cannot."""

    ref: ChannelRef
    state: ChannelState | None = None
    release: Release | None = None
    error: EngineCIError | None = None


def _look(shell: Shell, ref: ChannelRef) -> _Looked:
    state = None
    try:
        state = shell.registry.channels.state(ref)
        return _Looked(ref=ref, state=state, release=_live_release(shell, state))
    except (IntegrityError, NotFound) as error:
        if error.name == "registry-missing":
            raise
        return _Looked(ref=ref, state=state, error=error)


def _channels(shell: Shell, name: str | None) -> list[ChannelRef]:
    from engine_registry.refs import ChannelRef, ProductRef

    if name is None:
        return shell.registry.channels.channels()
    if name.count("/") == 1:
        return shell.registry.channels.channels(ProductRef.parse(name))
    return [ChannelRef.parse(name)]


def _live_release(shell: Shell, state: ChannelState) -> Release | None:
    if state.live is None:
        return None
    from engine_registry.refs import ProductRef, ReleaseRef

    ref = ReleaseRef(ProductRef(state.model, state.target), state.live.number)
    return shell.registry.releases.release(ref)


def _first_step(shell: Shell) -> str:
    """What brings something to a channel where nothing ever was."""
    for product in shell.registry.releases.products():
        for number in reversed(shell.registry.releases.numbers(product)):
            return f"enginectl promote {product}:{number} --to staging"
    return "enginectl release ENGINE"


def _draw(out: Page, rows_of: list[tuple[ChannelState, Release | None]]) -> None:
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.say_channel import flags
    from engine_pipeline.cli.say_set import pending_lines

    product = ""
    rows: list[tuple[Any, ...]] = []
    titled: list[tuple[str, list[tuple[Any, ...]]]] = []
    for state, release in rows_of:
        if f"{state.model}/{state.target}" != product:
            product, rows = f"{state.model}/{state.target}", []
            titled.append((product, rows))
        if state.live is None:
            rows.append((state.channel, "nothing live", "", "", "", flags(state)))
            continue
        since = when(state.history[0].since)
        rows.append(
            (
                state.channel,
                state.live.number,
                state.live.engine.short,
                release.content.precision if release is not None else "damaged",
                since,
                flags(state),
            )
        )
    for title, lines in titled:
        out.line(title)
        out.table(("channel", "release", "engine", "precision", "live since", "state"), lines)
    for state, _ in rows_of:
        if state.pending is not None:
            for line in pending_lines(state.name, state.pending, None):
                out.line(line)
        for label, item in (("hold", state.hold), ("frozen", state.freeze)):
            if item is not None:
                out.wrapped(f"{label} on {state.name} by {item.actor.name}: {item.reason}", "  ")
