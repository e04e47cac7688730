"""Reads and writes a suite's calibration files."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.gates.calibration import Calibration, GateCalibration, file_name
from engine_pipeline.whole_file import replace_whole
from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "calibration"


def calibration_path(suite_dir: Path, host_class: str) -> Path:
    """Where the calibration of a class of hosts is kept."""
    return suite_dir / _FOLDER / file_name(host_class)


def read_calibrations(suite_dir: Path) -> list[Calibration]:
    """All of a suite's, in order of file name.

    Raises:
        InvalidInput: a file is no calibration.
    """
    return [_read(path) for path in sorted((suite_dir / _FOLDER).glob("*.json"))]


def _read(path: Path) -> Calibration:
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except (ValidationError, OSError) as error:
        raise InvalidInput(
            f"{path}: not a calibration: {_wrong(error)}",
            hint=f"restore it, or remove it and calibrate anew: rm {shlex.quote(str(path))}",
            reference="calibration-invalid",
        ) from error


def _wrong(error: ValidationError | OSError) -> str:
    """The first thing that is wrong, with its place in the file."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    said = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
    more = error.error_count() - 1
    return (f"{where}: " if where else "") + said + (f" (and {more} more)" if more else "")


def check_kept(suite_dir: Path, host_class: str) -> None:
    """Refuse, before anything is measured, a kept file that nothing could be added to.

    Raises:
        InvalidInput: what is there is no calibration.
    """
    path = calibration_path(suite_dir, host_class)
    if path.exists():
        _read(path)


def keep(suite_dir: Path, host_class: str, gate: str, found: GateCalibration) -> Path:
    """Write what was found on a gate, beside what is known of its other parts and of other gates.

    Raises:
        InvalidInput: what is there is no calibration.
        Unavailable: it cannot be written.
    """
    path = calibration_path(suite_dir, host_class)
    known = _read(path).gates if path.is_file() else {}
    whole = Calibration(
        host_class=host_class, gates={**known, gate: found.with_parts_of(known.get(gate))}
    )
    text = json.dumps(whole.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    try:
        path.parent.mkdir(exist_ok=True)
        replace_whole(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror}",
            hint="check permissions and free space of its directory, then calibrate again",
            reference="calibration-unwritable",
        ) from error
    return path
