"""Whether a checkpoint's safetensors files are whole, from their headers alone.

A file is eight bytes of header length, the header in JSON, and the tensors end to end, so its exact
size is in its header. Source: the format's description in huggingface/safetensors README.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX_FILE = "model.safetensors.index.json"
_LENGTH_BYTES = 8
# The format's own limit.
_HEADER_LIMIT = 100_000_000
_HINT = "fetch the file again; `enginectl build` does so after `enginectl lock`"


def read_shards(directory: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    """Tensors by stored type, and the names of the files that hold them.

    Raises:
        InvalidInput: `engine-truncated`, `engine-empty`, `engine-foreign`, `engine-incomplete`.
    """
    files = sorted(path for path in directory.glob("*.safetensors") if path.is_file())
    types: Counter[str] = Counter()
    tensors: set[str] = set()
    for path in files:
        header = _header(path)
        types.update(str(tensor["dtype"]) for tensor in header.values())
        tensors.update(header)
    _check_index(directory / INDEX_FILE, {path.name for path in files}, tensors)
    if not tensors:
        raise InvalidInput(
            f"{directory.name} holds no weights: no safetensors file with tensors",
            hint=_HINT,
            reference="engine-incomplete",
        )
    return dict(types), tuple(path.name for path in files)


def _header(path: Path) -> dict[str, dict[str, object]]:
    """The tensors of one file, after comparing its size with what they need."""
    size = path.stat().st_size
    if not size:
        raise InvalidInput(f"{path.name} is empty (0 bytes)", hint=_HINT, reference="engine-empty")
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        data = stream.read(length) if length <= _HEADER_LIMIT else b""
    if not data.startswith(b"{"):
        raise InvalidInput(
            f"{path.name} is no safetensors file: no header after its first {_LENGTH_BYTES} bytes",
            hint=_HINT,
            reference="engine-foreign",
        )
    if len(data) < length:
        raise _cut_off(path, size, _LENGTH_BYTES + length)
    try:
        header = json.loads(data)
        header.pop("__metadata__", None)
        end = max((int(tensor["data_offsets"][1]) for tensor in header.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            f"{path.name}: its header is not readable: {error}",
            hint=_HINT,
            reference="engine-foreign",
        ) from error
    wanted = _LENGTH_BYTES + length + end
    if size != wanted:
        raise _cut_off(path, size, wanted)
    tensors: dict[str, dict[str, object]] = header
    return tensors


def _cut_off(path: Path, size: int, wanted: int) -> InvalidInput:
    word = "truncated" if size < wanted else "longer than its header says"
    return InvalidInput(
        f"{path.name} is {word}: {size:,} bytes, its header says {wanted:,}",
        hint=_HINT,
        reference="engine-truncated",
    )


def _check_index(path: Path, files: set[str], tensors: set[str]) -> None:
    if not path.is_file():
        return
    try:
        weight_map: dict[str, str] = json.loads(path.read_bytes())["weight_map"]
        wanted, names = set(weight_map.values()), set(weight_map)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            f"{path.name}: not a safetensors index: {error}", hint=_HINT, reference="engine-foreign"
        ) from error
    _refuse_missing(path.name, "files", wanted - files)
    _refuse_missing(path.name, "tensors", names - tensors)


def _refuse_missing(name: str, what: str, missing: Iterable[str]) -> None:
    listed = sorted(missing)
    if listed:
        more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
        raise InvalidInput(
            f"{name} names {what} that are not there: {', '.join(listed[:4])}{more}",
            hint=_HINT,
            reference="engine-incomplete",
        )
