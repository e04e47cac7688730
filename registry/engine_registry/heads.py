"""The pointers of channels: a cached fold of each log, which anybody may lose, delay or repair.

Nothing rests on a pointer: a reader folds in the events after it, and replays the log without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.documents import seal, unseal
from engine_registry.errors import Conflict, EngineCIError, IntegrityError
from engine_registry.events import ChannelState

if TYPE_CHECKING:
    from engine_registry.refs import ChannelRef
    from engine_registry.store import PointerStore, PointerValue

_LOG = logging.getLogger(__name__)

# How often a pointer is tried when others move it at the same time; the next move catches up.
_TRIES = 8


class Heads:
    """The pointer of every channel of one registry."""

    def __init__(self, pointers: PointerStore) -> None:
        self._pointers = pointers
        # Version and event of each as last read here: where to swap without reading it once more.
        self._seen: dict[ChannelRef, tuple[str | None, int]] = {}

    def read(self, ref: ChannelRef) -> ChannelState | None:
        """The state that the pointer holds; None where it is absent or damaged."""
        name = layout.head(ref)
        value = self._pointers.read(name)
        try:
            state = pointed(value, ref)
        except IntegrityError:
            state = None
            _LOG.warning("%s is damaged; replaying the event log", name)
        self._seen[ref] = value.version if value else None, state.number if state else 0
        return state

    def publish(self, ref: ChannelRef, state: ChannelState) -> None:
        """Move the pointer up to `state` unless it is further; the commit does not depend on it."""
        name = layout.head(ref)
        try:
            if ref not in self._seen:
                self.read(ref)
            for _ in range(_TRIES):
                version, number = self._seen[ref]
                if number >= state.number:
                    return
                try:
                    self._pointers.swap(name, version, seal(state))
                except Conflict:
                    self.read(ref)
                    continue
                return
        except EngineCIError as error:
            _LOG.warning("%s: pointer not updated (%s); the next move will", ref, error.message)


def pointed(value: PointerValue | None, ref: ChannelRef) -> ChannelState | None:
    """The state that a channel's pointer holds; None where it is absent or another channel's.

    Raises:
        IntegrityError: it is damaged.
    """
    if value is None:
        return None
    state, _ = unseal(value.data, ChannelState, layout.head(ref))
    return state if state.name == str(ref) else None
