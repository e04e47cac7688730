"""What a TensorRT plan says in its first bytes, without TensorRT.

    bytes 0-3     66 74 72 74, `ftrt`
    bytes 4-7     version of the serialisation, 0 in every TensorRT 10
    bytes 24-27   TensorRT version: major, minor, patch, build, one byte each

Source: printPlanVersion in samples/common/sampleEngines.cpp of NVIDIA/TensorRT. The compute
capability is in the plan too, at no documented place, so it is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

TAG = b"ftrt"
HEADER_BYTES = 28
_HINT = "build the engine again, or take the right directory"
# First bytes of what people mistake for a plan.
_OTHERS = {
    b"GGUF": "a GGUF file",
    b"PK\x03\x04": "a zip or PyTorch file",
    b"\x7fELF": "a program",
    b"\x08": "an ONNX model",
    b"vers": "a Git LFS pointer, not the file itself",
    b"<!DO": "an HTML page",
    b"<htm": "an HTML page",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """One plan file.

    Attributes:
        tensorrt: major.minor.patch.build of the TensorRT that made it.
        serialisation: version of the format.
    """

    tensorrt: str
    serialisation: int
    size_bytes: int


def read_plan_header(path: Path) -> PlanHeader:
    """The header of the plan at `path`.

    Raises:
        InvalidInput: `engine-empty`, `engine-truncated` or `engine-foreign`.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(HEADER_BYTES)
    if not head:
        raise InvalidInput(
            f"{path.name} is empty (0 bytes): the build that left it did not finish",
            hint=_HINT,
            reference="engine-empty",
        )
    if not head.startswith(TAG[: len(head)]):
        raise InvalidInput(
            f"{path.name} is no TensorRT plan: it begins with {head[:4].hex(' ')} "
            f"({_known(head)}), want {TAG.hex(' ')} ({TAG.decode()})",
            hint=_HINT,
            reference="engine-foreign",
        )
    if len(head) < HEADER_BYTES:
        raise InvalidInput(
            f"{path.name} is truncated: {size} bytes, a plan's header alone has {HEADER_BYTES}",
            hint=_HINT,
            reference="engine-truncated",
        )
    return PlanHeader(
        tensorrt=".".join(str(part) for part in head[24:28]),
        serialisation=int.from_bytes(head[4:8], "little"),
        size_bytes=size,
    )


def _known(head: bytes) -> str:
    for start, name in _OTHERS.items():
        if head.startswith(start):
            return name
    if not any(head):
        return "zeros: space was reserved and never written"
    return "nothing known"
