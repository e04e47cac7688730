"""Tables of facts that are shipped as JSON beside the module that owns them.

They are part of the program, the same for every run of one version: what follows from them is as
pure as what follows from a constant.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table_beside(module_file: str, name: str) -> dict[str, Any]:
    """The table `name` beside a module, which gives its own `__file__`; read once, not to change.

    Args:
        module_file: of the module that owns the table.
        name: of the file.
    """
    found: dict[str, Any] = json.loads(Path(module_file).with_name(name).read_bytes())
    return found
