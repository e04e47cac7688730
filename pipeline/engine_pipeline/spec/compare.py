"""What moved: between a spec and its lock, or between two locks. Pure.

Names are dotted paths: those of the spec as in the spec's file, and beside them `source`,
`calibration_source`, `tokenizer`, `image` and `tools` for what the lock pinned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec

# Left out of the build key (`lock.build_inputs`): names of things whose content is in it, and what
# is read from files whose digests are in it.
_NOT_INPUTS = frozenset(
    {
        "schema_version",
        "suites",
        "serving",
        "model.source",
        "model.revision",
        "model.files",
        "backend.image",
        "calibration.source",
        "calibration.revision",
        "source.source",
        "source.revision",
        "calibration_source.source",
        "calibration_source.revision",
        "image.reference",
        "shape",
    }
)
_SHOWN_LENGTH = 80


class Moved(Value):
    """One value that is not what it was.

    Attributes:
        path: dotted.
        locked: the value on the one side; None if it is not there.
        now: the value on the other.
        changes_engine: whether the build key covers it.
    """

    path: str
    locked: Any
    now: Any
    changes_engine: bool

    def __str__(self) -> str:
        return f"{self.path}: locked {_shown(self.locked)}, now {_shown(self.now)}"


def check_lock(
    spec: BuildSpec, lock: BuildLock, tools: Mapping[str, str] | None = None
) -> tuple[Moved, ...]:
    """What was edited in the spec since it was locked; empty means the lock holds.

    Args:
        spec: as it is now.
        lock: what lies beside it.
        tools: versions installed now, to be compared too; None leaves them out.
    """
    locked, now = _flat_spec(lock.spec), _flat_spec(spec)
    if tools is not None:
        locked |= _flat("tools", lock.tools)
        now |= _flat("tools", dict(tools))
    return _moved(locked, now)


def diff_hosts(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[Moved, ...]:
    """What differs between two building machines, as far as keys cover it."""
    return tuple(
        Moved(path=f"host.{name}", locked=one.get(name), now=other.get(name), changes_engine=True)
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    )


def diff_locks(locked: BuildLock, now: BuildLock) -> tuple[Moved, ...]:
    """What differs between two locks, first what changes the engine, then what does not."""
    moved = _moved(_flat_lock(locked), _flat_lock(now))
    return tuple(sorted(moved, key=lambda item: not item.changes_engine))


def _moved(locked: dict[str, Any], now: dict[str, Any]) -> tuple[Moved, ...]:
    return tuple(
        Moved(
            path=path,
            locked=locked.get(path),
            now=now.get(path),
            changes_engine=not _is_left_out(path),
        )
        for path in sorted({*locked, *now})
        if locked.get(path) != now.get(path)
    )


def _is_left_out(path: str) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in _NOT_INPUTS)


def _flat_spec(spec: BuildSpec) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in spec.model_dump(mode="json").items():
        flat |= _flat(name, value)
    return flat


def _flat_lock(lock: BuildLock) -> dict[str, Any]:
    plain = lock.model_dump(mode="json", exclude={"spec", "schema_version"})
    plain["calibration_source"] = plain.pop("calibration")
    flat = _flat_spec(lock.spec)
    for name, value in plain.items():
        flat |= _flat(name, value)
    return flat


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Dotted path → leaf; files go by their path, other lists are leaves, absent things nothing."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "path" in value[0]:
        value = {item["path"]: {k: v for k, v in item.items() if k != "path"} for item in value}
    if not isinstance(value, dict):
        return {} if value is None else {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(f"{name}.{key}", inner)
    return flat


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
