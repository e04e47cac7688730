"""The package that loads engines, and which version of it. Light to import."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from engine_registry.errors import Incompatible

RUNTIME = "xllamacpp"
# The one this package was tested with: server parameters and answers change between releases.
SUPPORTED_RUNTIME = "2026.10.11549"


def installed(package: str) -> str:
    """The installed version of `package`.

    Raises:
        Incompatible: `tool-missing`.
    """
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise Incompatible(
            f"{package} is not installed, llama-cpp engines need it",
            hint="pip install 'engine-ci[llama-cpp]'",
            reference="tool-missing",
        ) from error
