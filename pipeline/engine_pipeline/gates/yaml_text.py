"""Values as JSON that YAML reads alike: it refuses some characters that JSON lets stand. Pure."""

from __future__ import annotations

import json


def yaml_text(value: object) -> str:
    """One line of YAML for a value of texts, numbers, lists and mappings."""
    return "".join(
        char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
        for char in json.dumps(value, ensure_ascii=False)
    )
