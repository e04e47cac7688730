"""From what a person types to the release or record that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput
from engine_registry.refs import ProductRef

if TYPE_CHECKING:
    from engine_registry.digest import Digest
    from engine_registry.record import Record
    from engine_registry.registry import Registry


def product_of(registry: Registry, engine: Digest, asked: str | None) -> ProductRef:
    """The product that an engine is to be released as: the one asked for, or its only one.

    Raises:
        InvalidInput: equal bytes were built as several products, or never as the one asked for.
    """
    records = registry.engines.records(engine)
    built_as = sorted({ProductRef(record.model, record.target) for record in records})
    if asked is None and len(built_as) == 1:
        return built_as[0]
    names = ", ".join(map(str, built_as))
    if asked is None:
        raise InvalidInput(
            f"engine {engine.short}: was built as {len(built_as)} products: {names}",
            hint=f"say which: `enginectl release {engine.short} --product {built_as[0]}`",
            reference="ambiguous-reference",
        )
    if ProductRef.parse(asked) not in built_as:
        raise InvalidInput(
            f"engine {engine.short}: was never built as {asked}, only as {names}",
            hint=f"build it for {asked}, or `enginectl release {engine.short} "
            f"--product {built_as[0]}`",
            reference="other-product",
        )
    return ProductRef.parse(asked)


def latest_record(records: tuple[Record, ...]) -> Record:
    """The record of the newest build of an engine."""
    return max(records, key=lambda record: record.built_at)
