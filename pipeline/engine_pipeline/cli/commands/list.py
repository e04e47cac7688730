"""`enginectl list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.times import PAST

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.index_query import Found, IndexedEngine

# Fewer engines are read before anybody wonders what takes so long.
_SAY_FROM = 1000


@verb("list")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--product", metavar="MODEL/TARGET", help="Only of this product; * and ? match.")
@click.option("--kind", metavar="KIND", help="Only of this engine kind.")
@click.option("--precision", metavar="PRECISION", help="Only of this precision of the weights.")
@click.option(
    "--outcome",
    type=click.Choice(["passed", "failed", "errored", "inconclusive"]),
    help="Only if the newest report of a gate says so.",
)
@click.option("--released/--unreleased", default=None, help="Only with, or without, a release.")
@click.option("--since", type=PAST, help="Only built since, e.g. 2026-11-24 or 7d.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--rebuild", is_flag=True, help="Read the whole registry again first.")
def command(
    shell: Shell,
    text: str | None,
    product: str | None,
    kind: str | None,
    precision: str | None,
    outcome: str | None,
    released: bool | None,
    since: datetime | None,
    limit: int,
    rebuild: bool,
) -> Answer:
    """Engines in the registry by product, newest build first.

    TEXT is the start of an engine digest or build key, or a part of a spec's name. Answers come
    from an index in the cache directory that is brought up to date first; it may be deleted.
    What is damaged is named below the others, with exit code 11.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.say_damaged import draw_damaged
    from engine_registry.errors import ExitCode
    from engine_registry.index_query import EngineQuery

    query = EngineQuery(
        product=product,
        kind=kind,
        precision=precision,
        outcome=outcome,
        is_released=released,
        built_since=since,
        text=text,
        limit=limit,
    )
    shell.index.refresh(rebuild=rebuild, on_read=lambda done, of: _say(shell, done, of))
    found = shell.index.find(query)
    damaged = shell.index.damaged()
    document = {
        "total": found.total,
        "engines": [_document(engine) for engine in found.engines],
        "damaged": [
            {"reference": d.reference, "message": d.message, "hint": d.hint} for d in damaged
        ],
    }

    def page(out: Page) -> None:
        _draw(out, found, shell.registry_url)
        draw_damaged(out, [(d.message, d.hint) for d in damaged])

    code = ExitCode.INTEGRITY if damaged else ExitCode.DONE
    return Answer(document=document, page=page, exit_code=code)


def _say(shell: Shell, done: int, of: int) -> None:
    if of >= _SAY_FROM:
        if done <= _SAY_FROM:
            shell.progress.phase("index")
        shell.progress.update(done, of, "engines")


def _document(engine: IndexedEngine) -> dict[str, Any]:
    return {
        "engine": str(engine.digest),
        "product": engine.product,
        "kind": engine.kind,
        "precision": engine.precision,
        "spec": engine.spec,
        "size_bytes": engine.size_bytes,
        "built_at": engine.built_at.isoformat().replace("+00:00", "Z"),
        "built_by": engine.built_by,
        "releases": list(engine.releases),
        "also_released": list(engine.also_released),
        "gates": dict(engine.gates),
    }


def _draw(out: Page, found: Found, registry_url: str) -> None:
    if not found.engines:
        out.line(f"no engine in {registry_url} fits")
        return
    products: dict[str, list[IndexedEngine]] = {}
    for engine in found.engines:
        products.setdefault(engine.product, []).append(engine)
    heads = ("engine", "precision", "size", "built", "releases", "gates")
    for product, engines in products.items():
        out.line(product)
        out.table(heads, [_row(engine) for engine in engines], whole=heads[:4])
    if found.total > len(found.engines):
        out.line(f"{len(found.engines)} of {found.total:,}; --limit shows more, options narrow it")


def _row(engine: IndexedEngine) -> tuple[str, ...]:
    from engine_pipeline.cli.render import size

    return (
        engine.digest.short,
        engine.precision,
        size(engine.size_bytes),
        f"{engine.built_at:%Y-%m-%d %H:%M}Z",
        ", ".join([*map(str, engine.releases), *engine.also_released]) or "-",
        ", ".join(f"{gate} {outcome}" for gate, outcome in engine.gates.items()) or "-",
    )
