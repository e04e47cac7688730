"""Plans and results of garbage collection as pages and documents."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine_pipeline.cli.answer import Answer
from engine_pipeline.cli.render import size
from engine_registry.digest import Digest
from engine_registry.gc_plan import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from engine_pipeline.cli.render import Page
    from engine_registry.gc import Collected
    from engine_registry.gc_plan import KeptLine, Plan, RemovedLine

_WIDTH = 100


def gc_answer(
    plan: Plan,
    discarded: Collected | None,
    purged: Collected | None,
    *,
    url: str,
    grace: timedelta,
    purge: bool,
) -> Answer:
    """The answer of a collection.

    Args:
        plan: what it saw before it began.
        discarded: what went into the trash; None if nothing was to be done.
        purged: what was removed for good; None if nothing was to be.
        url: the registry.
        grace: how long things are left alone.
        purge: whether a purge is asked for, now or with --yes.
    """

    def page(out: Page) -> None:
        if discarded is None:
            out.line("plan: nothing was changed")
        else:
            _did(out, discarded, purged)
        out.facts([("registry", url)])
        removal = _removal(plan, discarded)
        _totals(out, plan, grace, removal, is_done=discarded is not None)
        _removed(out, plan.removed, removal)
        for name in plan.restored:
            out.line(f"  back out of the trash: {name}")
        if discarded is None:
            _kept(out, plan.kept)
            _next(out, plan, purge=purge)

    return Answer(document=_document(plan, discarded, purged), page=page)


def _document(plan: Plan, discarded: Collected | None, purged: Collected | None) -> dict[str, Any]:
    done = None
    if discarded is not None:
        done = {
            "discarded_files": discarded.discarded_files,
            "restored_files": discarded.restored + (purged.restored if purged else 0),
            "put_off": list(discarded.put_off),
            "purged_files": purged.purged_files if purged else 0,
            "purged_bytes": purged.purged_bytes if purged else 0,
        }
    return {
        "done": done,
        "kept": [
            {
                "kind": line.kind,
                "name": line.name,
                "engine": str(line.engine),
                "reasons": list(line.reasons),
                "bytes": line.size_bytes,
            }
            for line in plan.kept
        ],
        "removed": [
            {
                "kind": line.kind,
                "name": line.name,
                "what": line.what,
                "bytes": line.size_bytes,
                "files": line.files,
            }
            for line in plan.removed
        ],
        "restored": list(plan.restored),
        "totals": {
            "kept_bytes": plan.kept_bytes,
            "removed_bytes": plan.removed_bytes,
            "removed_files": sum(line.files for line in plan.removed),
            "trash_files": plan.trash_files,
            "trash_bytes": plan.trash_bytes,
            "purgeable_files": plan.purgeable_files,
            "purgeable_bytes": plan.purgeable_bytes,
        },
    }


def _removal(plan: Plan, discarded: Collected | None) -> str:
    """What the lines of the plan are called: not removed, if some of it was left for next time."""
    if discarded is None:
        return "to remove"
    if discarded.discarded_files < sum(line.files for line in plan.removed):
        return "planned"
    return "removed"


def _did(out: Page, discarded: Collected, purged: Collected | None) -> None:
    out.verdict("ok", f"{_files(discarded.discarded_files)} moved into the trash")
    if restored := discarded.restored + (purged.restored if purged else 0):
        out.line(f"   {_files(restored)} put back: something names them again")
    if purged is not None:
        out.line(f"   {_files(purged.purged_files)} removed for good, {size(purged.purged_bytes)}")
    for name in discarded.put_off:
        out.line(f"   left alone, named while this ran: {name}")


def _totals(out: Page, plan: Plan, grace: timedelta, removal: str, *, is_done: bool) -> None:
    from engine_pipeline.promote.duration import say_duration

    removed_files = sum(line.files for line in plan.removed)
    out.facts(
        [
            ("kept", f"{_counted(plan.kept)}, {size(plan.kept_bytes)}"),
            (
                removal,
                f"{_counted(plan.removed)}, {size(plan.removed_bytes)} in {_files(removed_files)}"
                if plan.removed
                else "nothing",
            ),
            ("to restore", f"{len(plan.restored)}" if plan.restored and not is_done else None),
            (
                "trash before" if is_done else "trash",
                f"{_files(plan.trash_files)}, {size(plan.trash_bytes)}; for {say_duration(grace)} "
                f"and more: {_files(plan.purgeable_files)}, {size(plan.purgeable_bytes)}",
            ),
        ]
    )


def _removed(out: Page, lines: tuple[RemovedLine, ...], removal: str) -> None:
    if not lines:
        return
    out.line(removal)
    names = [_short(line) for line in lines]
    width = min(max(map(len, names)), 48)
    for line, name in zip(lines, names, strict=True):
        amount = f"{size(line.size_bytes)} in {_files(line.files)}"
        text = f"{line.kind:<8} {name:<{width}}  {amount}, {line.what}"
        _wrapped(out, text, 2)


def _kept(out: Page, lines: tuple[KeptLine, ...]) -> None:
    if not lines:
        return
    out.line("kept, and what keeps it")
    for line in lines:
        amount = f" ({size(line.size_bytes)})" if line.kind is Kind.ENGINE else ""
        out.line(f"  {line.kind} {_short(line)}{amount}")
        for reason in line.reasons:
            _wrapped(out, reason, 6)


def _next(out: Page, plan: Plan, *, purge: bool) -> None:
    if plan.removed:
        out.line("next: `enginectl gc --yes` moves it into the trash; it can come back from there")
    elif not plan.purgeable_files:
        out.line("nothing to do")
    if plan.purgeable_files:
        out.line(
            f"next: `enginectl gc --yes --purge` removes {_files(plan.purgeable_files)} for good"
        )
    elif purge:
        out.line("nothing in the trash is old enough to be purged")


def _counted(lines: Iterable[KeptLine | RemovedLine]) -> str:
    counts = Counter[Kind](line.kind for line in lines)
    del counts[Kind.TOUCH]
    words = [
        f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}" for kind in Kind if counts[kind]
    ]
    return ", ".join(words) or "old notes"


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _short(line: KeptLine | RemovedLine) -> str:
    """Digests as people read them; their whole length is in the document."""
    if line.kind in {Kind.ENGINE, Kind.BLOB}:
        return Digest.parse(line.name).short
    return line.name


def _wrapped(out: Page, text: str, indent: int) -> None:
    for row in textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
        drop_whitespace=True,
    ):
        out.line(row)
