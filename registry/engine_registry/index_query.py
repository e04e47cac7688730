"""Questions to the index, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine_registry.digest import Digest

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

_COLUMNS = "digest, product, kind, precision, spec, size_bytes, built_at, built_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuery:
    """What to list; every part that is given has to hold.

    Attributes:
        product: `MODEL/TARGET`; `*` and `?` stand for anything.
        kind: engine kind.
        precision: of the weights.
        outcome: the newest report of any gate says so (`passed`, `failed`, ...).
        is_released: at least one release names the engine, or none does.
        built_since: aware time.
        text: the start of an engine digest or build key, or a part of the spec's name.
        limit: at most so many, newest builds first.
    """

    product: str | None = None
    kind: str | None = None
    precision: str | None = None
    outcome: str | None = None
    is_released: bool | None = None
    built_since: datetime | None = None
    text: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedEngine:
    """One engine as the index knows it: its newest build, releases and newest reports.

    Attributes:
        product: of its newest build; if another was asked for, that of a release that fits.
        releases: numbers of this product's.
        also_released: full names of releases that other products cut from the same bytes.
        gates: gate → outcome of its newest report.
    """

    digest: Digest
    product: str
    kind: str
    precision: str
    spec: str
    size_bytes: int
    built_at: datetime
    built_by: str
    releases: tuple[int, ...]
    also_released: tuple[str, ...]
    gates: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A page of engines, and how many there are in all."""

    engines: tuple[IndexedEngine, ...]
    total: int


def find_engines(connection: sqlite3.Connection, query: EngineQuery) -> Found:
    """The engines that fit, as the index knows them."""
    where, values = _conditions(query, is_shared=_is_shared(connection, query.product))
    total = connection.execute(f"SELECT COUNT(*) FROM engines e {where}", values).fetchone()[0]
    # The inner question is answered from an index alone; only what is shown is looked up.
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM engines WHERE digest IN (SELECT e.digest FROM engines e {where} "
        "ORDER BY e.built_at DESC, e.digest LIMIT ?) ORDER BY built_at DESC, digest",
        [*values, query.limit],
    ).fetchall()
    engines = tuple(_engine(connection, row, query.product or "*") for row in rows)
    return Found(engines=engines, total=total)


def _is_shared(connection: sqlite3.Connection, product: str | None) -> bool:
    """Whether some engine of another product was released as this one too; hardly any are."""
    return (
        connection.execute(
            "SELECT 1 FROM releases r JOIN engines e ON e.digest = r.engine "
            "WHERE r.product = ? AND e.product != ? LIMIT 1",
            (product, product),
        ).fetchone()
        is not None
    )


def _conditions(query: EngineQuery, *, is_shared: bool = False) -> tuple[str, list[Any]]:
    """The WHERE clause and its values; every value is bound, none is written into the clause."""
    parts: list[tuple[str, list[Any]]] = []
    if query.product is not None:
        if {"*", "?"} & set(query.product):
            # By age, not by product: what most products match is found at once in that order.
            product = _glob(query.product)
            parts.append(
                (
                    "(+e.product GLOB ? OR e.digest IN "
                    "(SELECT r.engine FROM releases r WHERE r.product GLOB ?))",
                    [product, product],
                )
            )
        elif is_shared:
            parts.append(
                (
                    "(+e.product = ? OR +e.digest IN "
                    "(SELECT r.engine FROM releases r WHERE r.product = ?))",
                    [query.product, query.product],
                )
            )
        else:
            parts.append(("e.product = ?", [query.product]))
    if query.kind is not None:
        parts.append(("e.kind = ?", [query.kind]))
    if query.precision is not None:
        parts.append(("e.precision = ?", [query.precision]))
    if query.outcome is not None:
        parts.append(("instr(e.outcomes, ?)", [outcomes_text([query.outcome])]))
    if query.is_released is not None:
        parts.append(("e.is_released = ?", [int(query.is_released)]))
    if query.built_since is not None:
        parts.append(("e.built_at >= ?", [sortable(query.built_since)]))
    if query.text is not None:
        start = query.text if query.text.startswith("sha256:") else f"sha256:{query.text}"
        end = start + "g"  # after every hex digit
        parts.append(
            (
                "(e.digest BETWEEN ? AND ? OR instr(e.spec, ?) OR e.digest IN "
                "(SELECT b.engine FROM builds b WHERE b.build_key BETWEEN ? AND ?))",
                [start, end, query.text, start, end],
            )
        )
    clause = " AND ".join(text for text, _ in parts)
    return (f"WHERE {clause}" if parts else ""), [v for _, values in parts for v in values]


def outcomes_text(outcomes: Iterable[str]) -> str:
    """Outcomes in a form in which each is found by its own form: `|failed|passed|`."""
    return f"|{'|'.join(sorted(set(outcomes)))}|"


def sortable(at: datetime) -> str:
    """A time in a form whose order as text is the order in time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _glob(product: str) -> str:
    return product.replace("[", "[[]")


def _engine(connection: sqlite3.Connection, row: tuple[Any, ...], asked: str) -> IndexedEngine:
    digest, product, kind, precision, spec, size_bytes, built_at, built_by = row
    releases: list[tuple[str, int]] = connection.execute(
        "SELECT product, number FROM releases WHERE engine = ? AND product GLOB ? "
        "ORDER BY product, number",
        (digest, _glob(asked)),
    ).fetchall()
    is_own = connection.execute("SELECT ? GLOB ?", (product, _glob(asked))).fetchone()[0]
    if not is_own and releases:
        product = releases[0][0]
    gates = connection.execute(
        "SELECT gate, outcome FROM gates WHERE engine = ? ORDER BY gate", (digest,)
    )
    return IndexedEngine(
        digest=Digest.parse(digest),
        product=product,
        kind=kind,
        precision=precision,
        spec=spec,
        size_bytes=size_bytes,
        built_at=datetime.strptime(built_at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC),
        built_by=built_by,
        releases=tuple(number for of, number in releases if of == product),
        also_released=tuple(f"{of}:{number}" for of, number in releases if of != product),
        gates=dict(gates.fetchall()),
    )
