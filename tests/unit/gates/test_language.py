"""Languages: sentences of each pass for their own and fail for the others."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.language import Language, defect

SENTENCES = {
    "en": "The capital of France is Paris, and it is known for the Eiffel Tower.",
    "de": "Die Hauptstadt von Frankreich ist Paris und sie ist für den Eiffelturm bekannt.",
    "fr": "La capitale de la France est Paris et elle est connue pour la tour Eiffel.",
    "es": "La capital de Francia es París y es conocida por la torre Eiffel en el mundo.",
    "it": "La capitale della Francia è Parigi ed è una città che si trova nel nord.",
    "pt": "A capital da França é Paris e não é a maior cidade do mundo, mas é uma das mais.",
    "ru": "Столица Франции — Париж.",
    "el": "Η πρωτεύουσα της Γαλλίας είναι το Παρίσι.",
    "zh": "法国的首都是巴黎。",
    "ja": "フランスの首都はパリです。",
    "ko": "프랑스의 수도는 파리입니다.",
    "ar": "عاصمة فرنسا هي باريس.",
    "he": "בירת צרפת היא פריז.",
    "hi": "फ्रांस की राजधानी पेरिस है।",
}


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_accepted_as_its_own_language(code):
    assert defect(SENTENCES[code], Language(code)) is None


@pytest.mark.parametrize("wanted", ["en", "de", "fr", "es", "it", "pt", "ru", "ko", "ar"])
def test_sentences_of_other_languages_are_refused(wanted):
    accepted = [code for code, text in SENTENCES.items() if defect(text, Language(wanted)) is None]
    assert accepted == [wanted]


def test_no_letters_at_all_are_no_language():
    assert "got '42'" in (defect("42", Language.EN) or "")


def test_every_language_has_a_sentence_here():
    assert set(SENTENCES) == {str(language) for language in Language}
