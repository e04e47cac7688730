"""`enginectl cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.sizes import SIZE

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.cache_plan import Decided, Decision


@verb("cache")
@click.argument("action", type=click.Choice(["list", "trim", "fill"]))
@click.argument("references", nargs=-1, metavar="[REFERENCE]...")
@click.option("--to", "limit", type=SIZE, help="With trim: to this instead of the limit.")
@click.option("--yes", is_flag=True, help="With trim: do it.")
def command(
    shell: Shell, action: str, references: tuple[str, ...], limit: int | None, yes: bool
) -> Answer:
    """Engines that this node keeps near, and what keeps each of them.

    Kept are engines of a registry in a bucket or on another file system, up to
    ENGINECTL_CACHE_LIMIT (200GB, 1.5TB): without one, none. Whatever lays an engine out (deploy,
    gate, bakeoff, inspect) takes it from here, linked into place where the file system allows. What
    a target deployed from this node serves, and the releases that were live before it (`keep` of
    targets.yaml), is never evicted; of the rest, what was not used for longest goes first.

    `list` shows what is here and what keeps it. `trim` shows what would go, and does it with --yes.
    `fill` fetches what targets of this node could be taken back to, or each REFERENCE: an engine, a
    release, or a channel.
    """
    if references and action != "fill":
        raise click.UsageError(f"cache {action} takes no reference")
    if action == "fill":
        return _fill(shell, references)
    if action == "trim":
        return _trim(shell, limit, yes)
    return _list(shell)


def _list(shell: Shell) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring_cache import node_cache

    cache = node_cache(shell)
    decision = cache.survey()

    def page(out: Page) -> None:
        _totals(out, str(cache.root), decision)
        for one in (*decision.kept, *decision.evicted):
            _draw(out, one)
        _draw_lacking(out, decision)

    return Answer(document=_document(str(cache.root), decision, done=False), page=page)


def _trim(shell: Shell, limit: int | None, yes: bool) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import counted, size
    from engine_pipeline.cli.wiring_cache import node_cache

    cache = node_cache(shell)
    decision = cache.trim(limit) if yes else cache.survey(limit)

    def page(out: Page) -> None:
        gone = counted(len(decision.evicted), "engine")
        freed = size(sum(one.frees_bytes for one in decision.evicted))
        if yes:
            out.verdict("ok", f"{gone} evicted, {freed}")
        else:
            out.line(f"plan: would evict {gone}, {freed}; nothing was changed")
        _totals(out, str(cache.root), decision)
        for one in decision.evicted:
            _draw(out, one)
        if decision.evicted and not yes:
            to = f" --to {limit}" if limit is not None else ""
            out.line(f"next: `enginectl cache trim{to} --yes`; what is needed again is fetched")

    return Answer(document=_document(str(cache.root), decision, done=yes), page=page)


def _fill(shell: Shell, references: tuple[str, ...]) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring_cache import LIMIT, cache_limit, near_cache, node_cache

    cache = near_cache(shell)
    wanted = [shell.registry.resolve_engine(text) for text in references]
    if not references:
        wanted = list(node_cache(shell).survey().lacking)
    done: list[dict[str, Any]] = []
    for digest in wanted if cache is not None else ():
        engine = shell.registry.engines.check_engine(digest)
        shell.progress.phase("fetch", f"engine {digest.short}, {engine.size_bytes:,} bytes")
        is_here = cache is not None and cache.fill(engine, shell.registry.stores)
        done.append({"engine": str(digest), "bytes": engine.size_bytes, "cached": is_here})
    shell.close()

    def page(out: Page) -> None:
        if cache is None:
            here = "the registry is on this node's own file system, engines are linked from there"
            off = f"{LIMIT} is not set; e.g. export {LIMIT}=200GB"
            out.line(f"nothing is kept: {off if cache_limit() is None else here}")
        elif not done:
            out.line("nothing to fetch: all that targets of this node need is here")
        for one in done:
            short = one["engine"].partition(":")[2][:12]
            if one["cached"]:
                out.verdict("ok", f"{short} is here")
            else:
                out.verdict("skipped", f"{short}: no room beside what has to stay")

    return Answer(document={"fetched": done}, page=page)


def _document(root: str, decision: Decision, *, done: bool) -> dict[str, Any]:
    def line(one: Decided) -> dict[str, Any]:
        entry = one.held.entry
        return {
            "engine": str(entry.engine),
            "product": f"{entry.model}/{entry.target}",
            "bytes": entry.size_bytes,
            "missing_bytes": one.held.missing_bytes,
            "used_at": one.held.used_at.isoformat().replace("+00:00", "Z"),
            "reasons": list(one.reasons),
            "frees_bytes": one.frees_bytes,
        }

    return {
        "directory": root,
        "limit_bytes": decision.limit_bytes,
        "kept_bytes": decision.kept_bytes,
        "over_bytes": decision.over_bytes,
        "done": done,
        "kept": [line(one) for one in decision.kept],
        "evicted": [line(one) for one in decision.evicted],
        "lacking": [
            {"engine": str(engine), "reasons": list(reasons)}
            for engine, reasons in decision.lacking.items()
        ],
    }


def _totals(out: Page, root: str, decision: Decision) -> None:
    from engine_pipeline.cli.render import counted, size
    from engine_pipeline.cli.wiring_cache import LIMIT

    amount = f"{counted(len(decision.kept), 'engine')}, {size(decision.kept_bytes)}"
    if decision.over_bytes:
        amount += f"; {size(decision.over_bytes)} above the limit, since all of it has to stay"
    limit = size(decision.limit_bytes) if decision.limit_bytes else f"no room; set {LIMIT}"
    out.facts([("cache", root), ("limit", limit), ("kept", amount)])


def _draw(out: Page, one: Decided) -> None:
    from engine_pipeline.cli.render import size

    entry, missing = one.held.entry, one.held.missing_bytes
    lacks = f", {size(missing)} of it not fetched" if missing else ""
    product = f"{entry.model}/{entry.target}"
    out.line(f"  {entry.engine.short}  {product}  {size(entry.size_bytes)}{lacks}")
    for reason in one.reasons:
        out.wrapped(reason, "      ")


def _draw_lacking(out: Page, decision: Decision) -> None:
    for engine, reasons in decision.lacking.items():
        out.line(f"  {engine.short}  is not here")
        for reason in reasons:
            out.wrapped(reason, "      ")
    if decision.lacking:
        out.line("next: `enginectl cache fill` fetches what is not here")
