"""When promotions may happen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine_pipeline.promote.window import Day, Window, window_finding

WEEKDAYS = Window(days=(Day.MON, Day.TUE, Day.THU), opens="08:00", closes="16:00")
LATE = Window(days=(Day.SUN,), opens="22:30", closes="24:00")
THURSDAY = datetime(2026, 12, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hour", "minute", "is_open"),
    [(7, 59, False), (8, 0, True), (15, 59, True), (16, 0, False), (23, 59, False)],
)
def test_a_window_holds_from_its_opening_to_the_minute_before_its_closing(hour, minute, is_open):
    assert WEEKDAYS.is_open(THURSDAY.replace(hour=hour, minute=minute)) is is_open


def test_a_window_is_closed_on_other_days():
    assert not WEEKDAYS.is_open(THURSDAY.replace(hour=9) + timedelta(days=1))


def test_a_window_may_last_to_the_end_of_the_day():
    assert LATE.is_open(datetime(2026, 12, 6, 23, 59, 59, tzinfo=UTC))
    assert not LATE.is_open(datetime(2026, 12, 7, tzinfo=UTC))


def test_outside_of_all_windows_the_next_opening_is_named():
    finding = window_finding("prod", (WEEKDAYS, LATE), THURSDAY.replace(hour=17))
    assert not finding.holds
    assert "it is Thu 2026-12-03 17:00Z" in finding.says
    assert "mon,tue,thu 08:00-16:00Z; sun 22:30-24:00Z" in finding.says
    assert "Sun 2026-12-06 22:30Z" in finding.hint
    assert window_finding("prod", (LATE, WEEKDAYS), THURSDAY.replace(hour=9)).holds


@given(
    now=st.timedeltas(timedelta(0), timedelta(days=400)).map(lambda span: THURSDAY + span),
    days=st.sets(st.sampled_from(Day), min_size=1),
)
def test_the_next_opening_is_within_a_week_and_open(now, days):
    window = Window(days=tuple(days), opens="08:00", closes="16:00")
    opening = window.next_opening(now)
    assert now < opening <= now + timedelta(days=7)
    assert window.is_open(opening)
    assert not window.is_open(opening - timedelta(minutes=1))


@pytest.mark.parametrize(
    "fields",
    [
        {"days": ["mon"], "opens": "16:00", "closes": "08:00"},
        {"days": ["mon"], "opens": "08:00", "closes": "08:00"},
        {"days": [], "opens": "08:00", "closes": "16:00"},
        {"days": ["monday"], "opens": "08:00", "closes": "16:00"},
        {"days": ["mon"], "opens": "8:00", "closes": "16:00"},
        {"days": ["mon"], "opens": "08:00", "closes": "25:00"},
        {"days": ["mon"], "opens": "08:00\n", "closes": "16:00"},
    ],
)
def test_a_window_that_never_opens_or_says_no_time_is_refused(fields):
    with pytest.raises(ValidationError):
        Window.model_validate(fields)
