"""What `trtllm-serve` says when a checkpoint does not load. Pure.

Nothing is compiled for this kind, so only what PyTorch and the server's own checks say is known:
memory that is short, and settings that the release does not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError, Incompatible, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

# PyTorch's own error class and its older text; both are followed by the sizes.
_MEMORY = ("torch.OutOfMemoryError", "CUDA out of memory")
_NO_GPU = ("no CUDA-capable device is detected", "CUDA driver version is insufficient")
# pydantic, when the YAML has a field that LlmArgs of this release does not know.
_SETTINGS = ("extra fields not permitted", "Extra inputs are not permitted")


class ServerWords:
    """The texts as the backend port wants them."""

    def step_error(self, step: str, lines: Iterable[str]) -> EngineCIError | None:  # noqa: ARG002
        """None: every step of this kind is this project's and ends with an error of its own."""
        return None

    def load_error(self, name: str, lines: Iterable[str]) -> EngineCIError | None:
        """Why the server gave up; None if none of the lines is known."""
        for line in lines:
            said = line.strip()[:300]
            if any(text in line for text in _MEMORY):
                return Unavailable(
                    f"{name}: GPU memory ran out: {said}",
                    hint="end other processes on the GPU; `enginectl capacity` shows what it needs",
                    reference="gpu-memory-short",
                )
            if any(text in line for text in _NO_GPU):
                return Unavailable(
                    f"{name}: the server found no usable GPU: {said}",
                    hint="check with `enginectl doctor` that the driver works",
                    reference="no-gpu",
                )
            if any(text in line for text in _SETTINGS):
                return Incompatible(
                    f"{name}: this release does not take a setting of serving.yaml: {said}",
                    hint="remove it from backend.options, or choose the release that has it",
                    reference="serving-setting-unknown",
                )
        return None

    def load_warnings(self, lines: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002
        """None is known: a checkpoint is bound to no board."""
        return ()
