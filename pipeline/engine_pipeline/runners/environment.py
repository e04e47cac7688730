"""The environment of a step's process: little, and the same from a checkout and an installation."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import engine_pipeline
import engine_registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ALWAYS = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TZ", "USER")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY")
_SHORTEST_SECRET = 8
HIDDEN = "[secret]"


def step_environment(
    names: Iterable[str], scratch: Path, inherited: Mapping[str, str]
) -> dict[str, str]:
    """What a step sees: basics, the variables it names, and where this package is.

    Args:
        names: variables that the step asks for; absent ones stay absent.
        scratch: for temporary files.
        inherited: the environment of this process.
    """
    wanted = {*_ALWAYS, *names}
    passed = {name: value for name, value in inherited.items() if name in wanted}
    return passed | {
        "PYTHONPATH": os.pathsep.join(_checkout_roots()),
        # Files in the working directory must not shadow modules.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "TMPDIR": str(scratch),
    }


def _checkout_roots() -> list[str]:
    """Where these packages lie, if that is a checkout; what is installed is found by itself.

    The directory of installed packages would go before the standard library and could shadow it.
    """
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    roots = {
        Path(package.__path__[0]).resolve().parent for package in (engine_pipeline, engine_registry)
    }
    return sorted(map(str, roots - installed))


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that no log may show, longest first."""
    found = {
        value
        for name, value in environment.items()
        if _SECRET.search(name.upper())
        and not name.upper().endswith("_PATH")
        and len(value) >= _SHORTEST_SECRET
    }
    return tuple(sorted(found, key=len, reverse=True))


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with every secret value replaced."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
