"""Everything whose code can change an engine's bytes, with its version: own steps included."""

from __future__ import annotations

from engine_pipeline.backends.llama_cpp import convert, quantise
from engine_pipeline.backends.llama_cpp.runtime import installed

CONVERT_TOOLS = ("engine-ci/convert", "gguf", "numpy")
QUANTISE_TOOLS = ("engine-ci/quantise", "libgguf", "numpy")
_OWN = {
    "engine-ci/convert": str(convert.REVISION),
    "engine-ci/quantise": str(quantise.REVISION),
}


def installed_tools() -> dict[str, str]:
    """Tool → version, for the lock.

    Raises:
        Incompatible: `tool-missing`, for a package that is not installed.
    """
    names = sorted({*CONVERT_TOOLS, *QUANTISE_TOOLS})
    return {name: _OWN.get(name) or installed(name) for name in names}
