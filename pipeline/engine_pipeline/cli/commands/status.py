"""`enginectl status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.events import ChannelState
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


@verb("status")
@click.argument("name", required=False, metavar="[MODEL/TARGET[/CHANNEL]]")
def command(shell: Shell, name: str | None) -> Answer:
    """What is live where: all channels, those of one MODEL/TARGET, or one channel."""
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_channel import state_document

    states = [shell.registry.channels.state(ref) for ref in _channels(shell, name)]
    releases = [_live_release(shell, state) for state in states]
    document = {
        "channels": [
            {**state_document(s), "release": r.model_dump(mode="json") if r else None}
            for s, r in zip(states, releases, strict=True)
        ]
    }

    def page(out: Page) -> None:
        _draw(out, states, releases, shell.registry_url)

    return Answer(document=document, page=page)


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


def _draw(
    out: Page, states: list[ChannelState], releases: list[Release | None], registry_url: str
) -> None:
    from engine_pipeline.cli.render import when
    from engine_pipeline.cli.say_channel import flags
    from engine_pipeline.cli.say_set import pending_lines

    if not states:
        out.line(f"no channels yet in {registry_url}")
        out.line("next: `enginectl release ENGINE`, then `enginectl promote RELEASE --to staging`")
        return
    product = ""
    rows: list[tuple[Any, ...]] = []
    titled: list[tuple[str, list[tuple[Any, ...]]]] = []
    for state, release in zip(states, releases, strict=True):
        if f"{state.model}/{state.target}" != product:
            product, rows = f"{state.model}/{state.target}", []
            titled.append((product, rows))
        if release is None or state.live is None:
            rows.append((state.channel, "nothing live", "", "", "", flags(state)))
            continue
        since = when(state.history[0].since)
        content = release.content
        rows.append(
            (
                state.channel,
                release.number,
                content.engine.short,
                content.precision,
                since,
                flags(state),
            )
        )
    for title, lines in titled:
        out.line(title)
        out.table(("channel", "release", "engine", "precision", "live since", "state"), lines)
    for state in states:
        if state.pending is not None:
            for line in pending_lines(state.name, state.pending, None):
                out.line(line)
        for label, item in (("hold", state.hold), ("frozen", state.freeze)):
            if item is not None:
                out.line(f"  {label} on {state.name} by {item.actor.name}: {item.reason}")
