"""The changes between two locks, and locks that have some of them. Pure.

Some parts of a lock only make sense together and are one change: a model is its files, tokenizer
and shape; a toolkit is its version, image and tools. Everything else changes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine_pipeline.spec.compare import diff_hosts, diff_locks
from engine_pipeline.spec.lock import BuildLock
from engine_registry.documents import Value
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# change: the parts of a lock that go with it, as paths in its plain form. Applied in this order,
# from what most often breaks an engine to what rarely does; what is not here comes last.
_TOGETHER: dict[str, tuple[str, ...]] = {
    "model": ("spec.model", "source", "tokenizer", "shape"),
    "toolkit": (
        "spec.backend.kind",
        "spec.backend.version",
        "spec.backend.image",
        "image",
        "tools",
    ),
    "precision": (
        "spec.precision.weights",
        "spec.precision.recipe",
        "spec.precision.allow_fallback",
    ),
    "precision.kv_cache": ("spec.precision.kv_cache",),
    "calibration": ("spec.calibration", "calibration"),
    "target": ("spec.target",),
}
# One by one, each key of these.
_EACH = ("spec.backend.options", "spec.limits")
# A gate serves what was recorded with the engine: these are no inputs of it.
_NEVER = ("spec.serving", "spec.suites")
_SHOWN = 3


class InputChange(Value):
    """One change from good to bad.

    Attributes:
        name: what people call it, e.g. `model`, `limits.max_batch_size`.
        parts: paths in a lock's plain form.
        says: what it was and what it is.
    """

    name: str
    parts: tuple[str, ...]
    says: str


def changes_between(good: BuildLock, bad: BuildLock) -> tuple[InputChange, ...]:
    """Every change of an input, in the order in which a bisection applies them.

    Empty if the build key is the same but for the machine.
    """
    one, other = _plain(good), _plain(bad)
    found = []
    for name, parts in _TOGETHER.items():
        if any(_get(one, part) != _get(other, part) for part in parts):
            found.append(InputChange(name=name, parts=parts, says=_says(good, bad, parts)))
    for section in _EACH:
        left, right = _get(one, section) or {}, _get(other, section) or {}
        for key in sorted({*left, *right}):
            if left.get(key) != right.get(key):
                part = f"{section}.{key}"
                says = f"{left.get(key, 'not set')} → {right.get(key, 'not set')}"
                name = part.removeprefix("spec.")
                found.append(InputChange(name=name, parts=(part,), says=says))
    return tuple(found)


def not_tried(good: BuildLock, bad: BuildLock) -> tuple[str, ...]:
    """What else differs, and is not an input of the engine."""
    one, other = _plain(good), _plain(bad)
    return tuple(
        part.removeprefix("spec.") for part in _NEVER if _get(one, part) != _get(other, part)
    )


def host_differences(
    good: Mapping[str, str], bad: Mapping[str, str], here: Mapping[str, str]
) -> tuple[str, ...]:
    """What differs between the machines that built both ends, and no build can change.

    Args:
        good: what the machine adds to the key of the good engine; nothing is known where none of
            its steps uses a GPU.
        bad: the same of the bad one.
        here: of this machine, where everything is built anew.
    """
    return tuple(
        f"{moved.path.removeprefix('host.')} {_short(moved.locked)} → {_short(moved.now)}"
        + _built_here(here.get(moved.path.removeprefix("host.")))
        for moved in diff_hosts(good, bad)
    )


def _built_here(value: str | None) -> str:
    return "" if value is None else f" (here {value})"


def mixed(good: BuildLock, bad: BuildLock, changes: Iterable[InputChange]) -> BuildLock:
    """The good lock with these changes.

    Raises:
        Incompatible: they do not go together, e.g. limits of which one exceeds the other.
    """
    plain, source = _plain(good), _plain(bad)
    names = []
    for change in changes:
        names.append(change.name)
        for part in change.parts:
            _set(plain, part, _get(source, part))
    try:
        return BuildLock.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"]
        raise Incompatible(
            f"good with {', '.join(names)}: {first}",
            hint="it is left out of the search",
            reference="inputs-do-not-mix",
        ) from error


def _plain(lock: BuildLock) -> dict[str, Any]:
    return lock.model_dump(mode="json")


def _get(plain: dict[str, Any], path: str) -> Any:
    found: Any = plain
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def _set(plain: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    found = plain
    for key in folders:
        found = found[key]
    if value is None and "." in path and last in found and path.startswith(_EACH):
        del found[last]
    else:
        found[last] = value


def _says(good: BuildLock, bad: BuildLock, parts: tuple[str, ...]) -> str:
    """The first few values that moved, as `explain` names them."""
    names = [part.removeprefix("spec.") for part in parts]
    moved = [
        item
        for item in diff_locks(good, bad)
        if any(item.path == name or item.path.startswith(f"{name}.") for name in names)
    ]
    words = [f"{m.path} {_short(m.locked)} → {_short(m.now)}" for m in moved[:_SHOWN]]
    more = len(moved) - len(words)
    return "; ".join(words) + (f"; {more} more" if more > 0 else "")


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
