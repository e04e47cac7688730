"""What is known of the code behind a `python` check, as reports store it. Pure."""

from __future__ import annotations

from pydantic import Field

from engine_registry.digest import Digest
from engine_registry.documents import Value


class CheckCode(Value):
    """The code behind one entry point.

    Attributes:
        distribution: the installed package that declares it.
        code: digest of the file that holds the function.
        editable: the package is a working copy: its version says little, `code` says it all.
        path: of that file, on this machine; not stored.
    """

    entry_point: str
    distribution: str
    version: str
    code: Digest
    editable: bool = False
    path: str = Field(default="", exclude=True, repr=False)
