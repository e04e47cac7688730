"""Which adapter serves which kind of target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.targets.definition import DirectoryDefinition, TritonDefinition

if TYPE_CHECKING:
    from engine_pipeline.targets.definition import Definition
    from engine_pipeline.targets.port import Target


def open_target(definition: Definition, who: str) -> Target:
    """The target that is described; nothing is read or made yet.

    Args:
        definition: of `targets.yaml` or of a command line.
        who: who deploys, for whoever finds the target held.
    """
    match definition:
        case DirectoryDefinition():
            from engine_pipeline.targets.directory import DirectoryTarget

            return DirectoryTarget(Path(definition.path), keep=definition.keep, who=who)
        case TritonDefinition():
            from engine_pipeline.targets.triton.target import TritonTarget

            return TritonTarget(definition, who=who)
        case _:
            assert_never(definition)
