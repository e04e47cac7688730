"""Characters that hide, reorder or command, spelled out. Pure.

A model's answer may hold anything: escape sequences for terminals, bidirectional overrides that
make text read differently from what it is, characters of no width, halves of characters that no
encoder takes. Reports show them instead of passing them on.
"""

from __future__ import annotations

import re
import unicodedata

# Controls but for tab and line feed; DEL and C1; soft hyphen; marks and overrides of direction; no
# width (but for the joiners that scripts and emoji need); line and paragraph separators; half
# characters; what is no character; tags.
UNSAFE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e"
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ufffe\\uffff\\ud800-\\udfff\\U000e0000-\\U000e007f]"
)
# Of the characters from 0 on, as ISO/IEC 6429 abbreviates them.
_CONTROLS = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)


def spelled(character: str) -> str:
    """What is shown for one unsafe character: a control's abbreviation, or code and name."""
    code = ord(character)
    if code < ord(" "):
        return f"[{_CONTROLS.split()[code]}]"
    name = unicodedata.name(character, "")
    return f"[U+{code:04X} {name}]" if name else f"[U+{code:04X}]"


def visible(text: str) -> str:
    """`text` with every unsafe character spelled out; a carriage return before a line feed goes."""
    return UNSAFE.sub(lambda found: spelled(found.group()), text.replace("\r\n", "\n"))
