"""What a bar was chosen from: the same engine measured again and again. Pure.

Stored beside the bars of a gate, so that whoever reads a bar sees how far it is from the noise.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text


class Calibration(Value):
    """One bar's evidence.

    Attributes:
        mean, deviation, n: of the measured value over runs of one engine against itself.
        bar: what was chosen; another bar in the policy has been changed since.
        engine: what was measured, `host_class` where and `at` when.
    """

    mean: float
    deviation: Annotated[float, Field(ge=0.0)]
    n: Annotated[int, Field(ge=2)]
    bar: float
    engine: Digest
    host_class: Text
    at: AwareDatetime
