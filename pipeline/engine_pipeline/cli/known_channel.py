"""The channel that a person types for a freeze or a hold, once it is clear that there is one.

Both write an event, and an event makes a channel for good: a mistyped name would stand there for
ever, and what was meant would go on moving.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError, InvalidInput
from engine_registry.refs import ChannelRef

if TYPE_CHECKING:
    from engine_pipeline.cli.wiring import Shell

_NEAR = 0.8


def known_channel(shell: Shell, text: str) -> ChannelRef:
    """The channel called `text`: one that has events, or one of channels.yaml and of a product.

    What the registry knows needs no channels.yaml: an incident does not wait for its repair.

    Raises:
        InvalidInput: no channel's name, or that of none that there is (`unknown-channel`).
    """
    ref = ChannelRef.parse(text)
    if ref in shell.registry.channels.channels(ref.product):
        return ref
    lacks = _what_it_lacks(shell, ref)
    if lacks is None:
        return ref
    near = get_close_matches(str(ref), _known_names(shell), n=1, cutoff=_NEAR)
    meant = f"did you mean {near[0]}? " if near else ""
    raise InvalidInput(
        f"channel {ref}: has no event in {shell.registry_url}, and {lacks}",
        hint=f"{meant}`enginectl status` lists the channels that have events",
        reference="unknown-channel",
    )


def _what_it_lacks(shell: Shell, ref: ChannelRef) -> str | None:
    """Why a channel without events is none either by its policy; None if it is."""
    try:
        shell.policies.for_channel(ref)
    except EngineCIError as error:
        return error.message
    if not shell.registry.releases.numbers(ref.product):
        return f"{ref.product} has no release"
    return None


def _known_names(shell: Shell) -> list[str]:
    """Channels with events, and those that channels.yaml names for products with releases."""
    found = {str(ref) for ref in shell.registry.channels.channels()}
    for product in shell.registry.releases.products():
        try:
            named = shell.policies.for_product(product).channels
        except EngineCIError:
            continue
        found |= {f"{product}/{name}" for name in named}
    return sorted(found)
