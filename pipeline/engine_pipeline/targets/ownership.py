"""Whose a directory is, before the first deployment writes there.

A target removes versions and engines that it no longer needs, and sweeps up names that begin with a
dot: in a directory of somebody else's these could be anything. So it takes one that is new or
empty, and afterwards knows its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Made first and together; whoever died in between left them empty.
_FOLDERS = frozenset({"versions", "engines"})
# Either of them beside `versions/` says that this was deployed to: `tree.Tree`.
_MARKS = (".lock", "fence.json")
# Names that a target writes: nothing of somebody else's may be called so.
_NAMES = _FOLDERS | {"current", *_MARKS}
# What an empty file system of its own begins with.
_NO_CONTENT = "lost+found"
_SHOWN = 3


def refuse_foreign(root: Path, may_stay: Callable[[Path], bool] = lambda _: False) -> None:
    """Return if `root` may be deployed to: new, empty, or a target of ours already.

    Args:
        root: the target's directory.
        may_stay: what may lie beside a target of this kind, whosever it is.

    Raises:
        InvalidInput: it holds something else (`target-foreign`).
    """
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return  # new; or the first write says what is wrong with it
    if (root / "versions").is_dir() and any((root / mark).is_file() for mark in _MARKS):
        return
    foreign = [entry.name for entry in entries if not _is_harmless(entry, may_stay)]
    if not foreign:
        return
    more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
    raise InvalidInput(
        f"directory {root}: holds {', '.join(foreign[:_SHOWN])}{more} and was never deployed to; "
        "want one that is new or empty, or a target already",
        hint=f"give the target a directory of its own, e.g. {root / 'serving'}",
        reference="target-foreign",
    )


def _is_harmless(entry: Path, may_stay: Callable[[Path], bool]) -> bool:
    if entry.name in _FOLDERS:
        return entry.is_dir() and not any(entry.iterdir())
    return entry.name == _NO_CONTENT or (entry.name not in _NAMES and may_stay(entry))
