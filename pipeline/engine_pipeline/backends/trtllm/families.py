"""Model families: which script converts a model, where it lies and how it wants to be called. Pure.

The table is `families.json`, which names its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine_pipeline.tables import table_beside
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.spec.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStyle:
    """What a conversion script calls its arguments; None for what it does not have.

    Attributes:
        fixed: always given.
        weight_only: flags that go before the name of a weight-only scheme.
        gptq: flags for a source that is quantised in groups; the group's size follows.
    """

    model: str
    output: str
    dtype: str
    tensor: str
    pipeline: str | None
    fixed: tuple[str, ...]
    weight_only: tuple[str, ...]
    moe_tensor: str | None
    moe_expert: str | None
    gptq: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that one script converts.

    Attributes:
        weight_only: schemes the script can make, or read from a quantised source.
        gptq_path: flag that names the file of a GPTQ checkpoint, where the script has one.
        experts: a mixture of experts, whose ranks are set apart.
        pipeline: pipeline parallelism works.
    """

    name: str
    architectures: tuple[str, ...]
    script: str
    style: ScriptStyle
    weight_only: tuple[str, ...]
    gptq_path: str | None = None
    experts: bool = False
    pipeline: bool = True


def family_called(name: str) -> Family:
    """The family of this name.

    Raises:
        InvalidInput: `unknown-value`, with the known names.
    """
    family = _families().get(name)
    if family is None:
        raise InvalidInput(
            f"backend.options.family: unknown {name!r}; known for trtllm-engine: "
            + ", ".join(_families()),
            hint="name the family whose convert_checkpoint.py reads this model",
            reference="unknown-value",
        )
    return family


def family_of(architecture: str) -> Family | None:
    """The family an architecture belongs to, if the table knows it."""
    for family in _families().values():
        if architecture in family.architectures:
            return family
    return None


def choose_family(named: str | None, shape: ModelShape | None, name: str) -> Family:
    """The family to convert with: the architecture's, or the one the spec names.

    Args:
        named: `backend.options.family`.
        shape: of the locked model; None if the source has no readable `config.json`.
        name: the spec, for errors.

    Raises:
        InvalidInput: `family-unknown` or `family-differs`.
    """
    found = family_of(shape.architecture) if shape else None
    if named is not None:
        family = family_called(named)
        if found is not None and found.name != family.name:
            raise InvalidInput(
                f"{name}: backend.options.family is {family.name}, the model's config.json says "
                f"{shape.architecture if shape else ''}, which is {found.name}",
                hint="remove `family` from backend.options; it is for architectures not known here",
                reference="family-differs",
            )
        return family
    if found is None:
        architecture = f"architecture {shape.architecture}" if shape else "no readable config.json"
        raise InvalidInput(
            f"{name}: the source has {architecture}; families known for trtllm-engine: "
            + ", ".join(_families()),
            hint="set backend.options.family to the one whose convert_checkpoint.py reads it",
            reference="family-unknown",
        )
    return found


def examples_root() -> str:
    """Where the release image keeps the scripts."""
    root: str = _table()["root"]
    return root


def convert_script(family: Family, version: str) -> str:
    """Path of the family's conversion script below the examples' root, in this release."""
    table = _table()
    layout: str = table["layouts"][table["layout_of"][version]]
    return layout.format(script=family.script)


def quantize_script() -> str:
    """Path of `quantize.py` below the examples' root, the same in every release."""
    path: str = _table()["quantize"]
    return path


@cache
def _families() -> dict[str, Family]:
    table = _table()
    styles = {name: ScriptStyle(**_tuples(row)) for name, row in table["styles"].items()}
    return {
        name: Family(name=name, **{**_tuples(row), "style": styles[row["style"]]})
        for name, row in table["families"].items()
    }


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _table() -> dict[str, Any]:
    return table_beside(__file__, "families.json")
