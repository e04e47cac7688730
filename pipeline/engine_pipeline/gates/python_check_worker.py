"""Runs one function of one check on one answer, in a process that nothing else depends on.

Reads a request from standard input and writes a verdict to standard output; what the function
prints goes nowhere. Run as a file, without the rest of this package.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """One request, one verdict."""
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump(verdict(json.load(sys.stdin)), verdicts)
    verdicts.close()


def verdict(request: dict[str, Any]) -> dict[str, Any]:
    """`passed` is None if the function could not say."""
    name: str = request["entry_point"]
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
        if Path(module.__file__ or "").resolve() != Path(request["path"]):
            return _open(f"{module_name} was imported from {module.__file__}")
        found = getattr(module, function_name)(request["answer"], **request["options"])
    except BaseException as error:  # whatever it is, it is the function's
        return _open(f"{name} raised {type(error).__name__}: {error}")
    if found is None or found is True:
        return {"passed": True, "reason": "as wanted"}
    if found is False:
        return {"passed": False, "reason": f"{name} says no"}
    if isinstance(found, str) and found.strip():
        return {"passed": False, "reason": found}
    return _open(f"{name} returned {type(found).__name__}, want None, a bool or a text")


def _open(reason: str) -> dict[str, Any]:
    return {"passed": None, "reason": reason}


if __name__ == "__main__":
    main()
