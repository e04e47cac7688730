"""Which of a project's files a YAML file is: by the keys at its top, and by its name. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class FileKind(StrEnum):
    """What `enginectl validate` can judge; the value is what people call it."""

    SPEC = "spec"
    SUITE = "suite"
    CASES = "cases"
    TEMPLATE = "template"
    PREFIXES = "prefixes"
    POLICIES = "policies"
    TARGETS = "targets"
    NOTIFICATIONS = "notifications"
    BAKEOFF = "bake-off"
    WORKLOAD = "workload"


# Keys that stand at the top of this kind of file. Of several kinds the one with the most wins, and
# among those the first: a key may be mistyped, or stand in two kinds.
_KEYS: dict[FileKind, frozenset[str]] = {
    FileKind.SPEC: frozenset({"model", "target", "precision", "backend", "limits", "suites"}),
    FileKind.SUITE: frozenset({"owner", "model", "reference", "sampling", "cases"}),
    FileKind.CASES: frozenset({"cases"}),
    FileKind.TEMPLATE: frozenset({"reference", "special_tokens", "chats"}),
    FileKind.PREFIXES: frozenset({"prefixes"}),
    FileKind.POLICIES: frozenset({"trust", "gates", "policies"}),
    FileKind.TARGETS: frozenset({"targets"}),
    FileKind.NOTIFICATIONS: frozenset({"destinations"}),
    FileKind.BAKEOFF: frozenset(
        {"contestants", "suites", "load", "structured", "currency", "limits", "optimise"}
    ),
    FileKind.WORKLOAD: frozenset(
        {"prompt_tokens", "output_tokens", "arrival", "requests", "duration_s", "shared_prefix"}
    ),
}
_NAMES = {
    "channels.yaml": FileKind.POLICIES,
    "targets.yaml": FileKind.TARGETS,
    "notifications.yaml": FileKind.NOTIFICATIONS,
    "suite.yaml": FileKind.SUITE,
    "template.yaml": FileKind.TEMPLATE,
    "prefixes.yaml": FileKind.PREFIXES,
}


def kind_of(value: Any, name: str) -> FileKind | None:
    """What a file is, None if neither its content nor its name says it.

    Args:
        value: of the file, None if it cannot be read.
        name: of the file, without its folders.
    """
    keys = set(value) if isinstance(value, dict) else set()
    # A case file has this one key, in every other kind it stands beside more.
    if "cases" in keys and len(keys & _KEYS[FileKind.SUITE]) == 1:
        return FileKind.CASES
    found = max(_KEYS, key=lambda kind: len(_KEYS[kind] & keys))
    if _KEYS[found] & keys:
        return found
    return _NAMES.get(name)
