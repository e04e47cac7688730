"""The machines whose verdicts count for a gate, and why another one's does not. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from engine_registry.documents import Value
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from engine_pipeline.gates.report import Device

Glob = Annotated[str, Field(min_length=1, max_length=300)]


class JudgedOn(Value):
    """Where a gate may be judged; at least one of the two.

    Attributes:
        host_class: glob over what a report calls the class of host, `*NVIDIA H100 80GB HBM3*`.
        driver: glob over the version of the GPU driver, `590.*`; a CPU target has none, so nothing
            fits.
    """

    host_class: Glob | None = None
    driver: Glob | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.host_class is None and self.driver is None:
            msg = "give host_class, driver or both, or leave judged_on out"
            raise ValueError(msg)
        return self


def check_machine(wanted: JudgedOn | None, device: Device) -> None:
    """Refuse to judge on a machine whose verdict would not count.

    Raises:
        Incompatible: reference `gate-other-machine`.
    """
    if wanted is None:
        return
    for name, glob, found in (
        ("host_class", wanted.host_class, device.host_class),
        ("driver", wanted.driver, device.driver),
    ):
        if glob is None or (found is not None and fnmatchcase(found, glob)):
            continue
        raise Incompatible(
            f"the gate is judged on {name} {glob!r}, this machine has "
            f"{'none' if found is None else repr(found)}",
            hint="judge on such a machine, or change judged_on of the gate in channels.yaml: what "
            "is judged elsewhere would not count",
            reference="gate-other-machine",
        )
