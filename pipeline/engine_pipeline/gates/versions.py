"""Versions of what asked and judged, for reports."""

from __future__ import annotations

import platform
from importlib import metadata


def client_versions() -> dict[str, str]:
    """Of this package, the client's library and Python."""
    return {
        "engine-ci": _version("engine-ci"),
        "aiohttp": _version("aiohttp"),
        "python": platform.python_version(),
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
