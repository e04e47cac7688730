"""From what a person types to the release or record that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.refs import ProductRef

if TYPE_CHECKING:
    from engine_registry.record import Record, Release
    from engine_registry.registry import Registry


def release_named(registry: Registry, text: str) -> Release:
    """The release that a release name, a channel, an engine digest or a prefix means.

    Raises:
        InvalidInput: no such form, or an engine that was released more than once.
        NotFound: nothing is called that, or the engine was never released.
    """
    found = registry.resolve(text)
    if found.release is not None:
        return found.release
    record = latest_record(registry.engines.records(found.engine))
    return registry.resolve_release(text, ProductRef(record.model, record.target))


def latest_record(records: tuple[Record, ...]) -> Record:
    """The record of the newest build of an engine."""
    return max(records, key=lambda record: record.built_at)
