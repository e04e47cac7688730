"""Numbers to half precision in pieces, refusing what half precision cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]

# Elements converted at once: 32 MiB as F32. Larger pieces were no faster, and memory stays flat.
PIECE_ELEMENTS = 8 << 20


def row_pieces(rows: int, row: int) -> Iterator[tuple[int, int]]:
    """Split `rows` rows of `row` elements into ranges of about `PIECE_ELEMENTS`."""
    step = max(1, PIECE_ELEMENTS // max(1, row))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def to_half(values: Floats, name: str) -> np.ndarray[Any, np.dtype[np.float16]]:
    """`values` as F16, rounded to nearest even.

    Raises:
        InvalidInput: a value is not finite, or beyond the range of F16; names the tensor.
    """
    import numpy as np

    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        worst = values[~np.isfinite(half)].ravel()[0]
        raise InvalidInput(
            f"tensor {name}: value {worst:g} does not fit F16, which ends at 65504",
            hint="this model needs BF16 or F32 weights, which llama-cpp engines do not have here",
            reference="weights-beyond-f16",
        )
    return half
