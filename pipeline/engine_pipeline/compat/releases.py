"""TensorRT-LLM releases: which TensorRT, CUDA and driver each has, and what it can build. Pure.

The table is `releases.json`, which names its sources. Nothing in the code asks whether a version is
newer than another: what a release can do is a field of its row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from engine_pipeline.tables import table_beside


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitRelease:
    """One TensorRT-LLM release; None for what is not known of it.

    Attributes:
        tensorrt: as many parts of the version as are known, `10.9` or `10.14.1.48`.
        driver: the driver that goes with its CUDA toolkit; an older one is not tested.
        image: where its container is.
        builder: it has `trtllm-build` and can load engines.
        pytorch: it serves Hugging Face checkpoints by default.
        listed: it is in the table; otherwise only its successors' rule is known.
    """

    version: str
    tensorrt: str | None
    cuda: str | None
    driver: str | None
    image: str | None
    builder: bool
    pytorch: bool
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderRemoval:
    """When and why `trtllm-build` went away."""

    after: str
    last_stable: str
    reason: str


def find_release(version: str) -> ToolkitRelease | None:
    """The release called `version`; a rule's row for one newer than the table, else None."""
    table = _table()
    row = table["releases"].get(version)
    if row is not None:
        return ToolkitRelease(version=version, **row)
    newer = table["newer"]
    if re.match(newer["pattern"], version):
        return ToolkitRelease(
            version=version,
            tensorrt=None,
            cuda=None,
            driver=None,
            image=None,
            builder=newer["builder"],
            pytorch=newer["pytorch"],
            listed=False,
        )
    return None


def releases() -> tuple[ToolkitRelease, ...]:
    """Every release of the table, oldest first."""
    return tuple(ToolkitRelease(version=name, **row) for name, row in _table()["releases"].items())


def builder_removal() -> BuilderRemoval:
    """What to tell whoever asks a newer release for an engine."""
    return BuilderRemoval(**_table()["builder_removed"])


def same_version(stated: str, known: str) -> bool:
    """Whether `stated` is `known`, as far as `known` goes: 10.9.0.34 is 10.9, and 10.8.1 is not."""
    parts, wanted = stated.split("."), known.split(".")
    return parts[: len(wanted)] == wanted


def version_parts(version: str) -> tuple[int, ...]:
    """The leading numbers of a dotted version, for comparing drivers: (590, 44, 1) of 590.44.01."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _table() -> dict[str, Any]:
    return table_beside(__file__, "releases.json")
