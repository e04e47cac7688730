"""Characters that hide, reorder or command are spelled out; all others stay."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.visible import visible


def test_what_a_terminal_would_obey_is_is_named():
    assert visible("\x1b[31m\x07\x7f") == "[ESC][31m[BEL][U+007F]"


def test_an_override_of_direction_is_named():
    assert visible("a\u202eb") == "a[U+202E RIGHT-TO-LEFT OVERRIDE]b"


def test_no_width_and_half_characters_are_given_by_code():
    assert visible("\u200b\ud800\x85") == "[U+200B ZERO WIDTH SPACE][U+D800][U+0085]"


def test_lines_tabs_scripts_and_emoji_stay():
    text = "a\tb\n باريس 東京 👩‍👩‍👧 café naïve שלום"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


@given(st.text())
def test_nothing_that_commands_is_left(text):
    left = {
        unicodedata.category(character) for character in visible(text) if character not in "\t\n"
    }
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(visible(text)) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
