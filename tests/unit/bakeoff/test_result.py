"""The document and its faces: what they say, and what they make of text that is not theirs."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from engine_pipeline.bakeoff.flips import Flip, Lever
from engine_pipeline.bakeoff.markdown import to_markdown
from engine_pipeline.bakeoff.measured import Unmeasured
from engine_pipeline.bakeoff.number import Number
from engine_pipeline.bakeoff.page import to_html
from engine_pipeline.bakeoff.result import BakeoffResult, judge_bakeoff
from engine_pipeline.bakeoff.say import bounded, plain, verdict_words
from engine_pipeline.bakeoff.words import flip_words, rounded
from engine_pipeline.gates.outcome import Outcome
from tests.bakeoff_world import AT, bars, file, lane, measured, performance, structured

EVIL = "</style><script>alert(1)</script>\u202eevil|`*"


def judged(**changes) -> BakeoffResult:
    wanted = file(**changes)
    found = {
        "one": measured(structured=structured()),
        "two": measured(passed=8, steps=(performance(ttft=200, tpot=20),)),
    }
    return judge_bakeoff(wanted, found, {}, AT)


def test_the_recommendation_is_one_sentence_with_the_numbers_of_both_sides():
    text = judged().recommendation
    assert text.startswith(
        "Take one (with 1 in flight): all 2 meet every limit; in cost one at 5.9 "
    )
    assert "USD per million output tokens" in text
    assert text.endswith(".")
    assert text.count(". ") == 0


def test_a_tie_is_inconclusive_and_says_how_much_more_would_settle_it():
    wanted = file(optimise=["quality"])
    found = {"one": measured(passed=9), "two": measured(passed=8)}
    result = judge_bakeoff(wanted, found, {}, AT)
    assert (result.winner, result.tied, result.outcome) == ("one", ("two",), Outcome.INCONCLUSIVE)
    assert result.headline == "Too close to call: one and two"
    # One case of ten differs, so four at 0 to 4 (p = 0.06) are too few: 1.96 squared times as many.
    assert "two at 0.8 (0.49 to 0.943) (1 of 10 cases worse, 0 better)" in result.recommendation
    assert "about 40 cases instead of 10 would tell one and two apart" in result.recommendation


def test_nobody_within_the_limits_is_a_refusal_and_says_why_of_each():
    result = judged(limits={"min_score": 0.95})
    assert (result.winner, result.outcome) == (None, Outcome.FAILED)
    assert result.recommendation.startswith("Take none of them")
    assert all(row.reasons for row in result.contestants)
    assert result.flips == ()


def test_too_little_evidence_is_neither():
    few = {name: measured(steps=(performance(n=10),)) for name in ("one", "two")}
    result = judge_bakeoff(file(limits={"max_ttft_p95_ms": 110}), few, {}, AT)
    assert result.outcome is Outcome.INCONCLUSIVE


def test_the_smallest_change_of_a_price_comes_first():
    prices = [flip for flip in judged().flips if flip.lever == "price"]
    changes = [abs((flip.at or 0) / (flip.now or 1) - 1) for flip in prices]
    assert len(prices) == 2
    assert changes == sorted(changes)
    assert judged().flips[0] == prices[0]


@pytest.mark.parametrize(("up", "said"), [(True, "0.1235"), (False, "0.1234")])
def test_a_stated_turning_point_is_rounded_to_the_side_where_it_has_turned(up, said):
    assert rounded(0.12345678, up=up) == said
    flip = Flip(lever=Lever.PRICE, whose="one", now=1.0, at=0.12345678, up=up, winner="two")
    assert said in flip_words(flip, file())


def test_whoever_fails_by_its_own_fault_fails_and_a_missing_one_leaves_it_open():
    rows = [
        (Outcome.FAILED, Outcome.FAILED, "failed"),
        (Outcome.ERRORED, Outcome.ERRORED, "not judged"),
    ]
    for of_two, whole, word in rows:
        bad = {name: Unmeasured(outcome=of_two, why="why") for name in ("one", "two")}
        result = judge_bakeoff(file(), {}, bad, AT)
        assert (result.winner, result.outcome) == (None, whole)
        assert {verdict_words(row) for row in result.contestants} == {word}
        assert "one and two could not be measured" in result.recommendation


def test_what_the_client_adds_is_in_every_written_report():
    said = "adds at most 1 ms to TTFT"
    assert said in to_html(judged())
    assert said in to_markdown(judged())


def test_the_document_is_json_without_infinities_and_reads_back():
    result = judged()
    text = result.model_dump_json(by_alias=True)
    assert "Infinity" not in text
    assert BakeoffResult.model_validate(json.loads(text)) == result


def test_the_structured_load_is_a_row_of_its_own():
    assert "| one, JSON | 19 of 20 fit |" in to_markdown(judged())
    assert "19 of 20 fit" in to_html(judged())


def busy(**changes) -> BakeoffResult:
    found = {
        "one": measured(foreign_cpu=0.4),
        "two": measured(passed=1, steps=(performance(ttft=200, tpot=20),)),
    }
    return judge_bakeoff(file(**changes), found, {}, AT)


def test_times_that_others_disturbed_recommend_nobody_and_say_what_would():
    result = busy(optimise=["cost", "quality"])
    assert (result.winner, result.shaken, result.outcome) == (
        "one",
        ("one",),
        Outcome.INCONCLUSIVE,
    )
    assert result.headline == "Not settled: one leads"
    assert result.recommendation.startswith("Not settled, one leads (with 1 in flight): all 2 meet")
    assert result.recommendation.endswith(
        "it rests on times of one that something else disturbed: measure anew with --again on a "
        "quiet machine."
    )
    assert "Not settled: one leads" in to_html(result)


def test_quality_alone_decides_on_a_busy_machine_and_the_caveat_stays():
    result = busy(optimise=["quality", "cost"])
    assert (result.headline, result.outcome) == ("Take one", Outcome.PASSED)
    assert any("while one was measured, others used 40%" in one for one in result.caveats)


def test_nobody_within_the_limits_on_a_busy_machine_is_no_refusal():
    limits = {"max_ttft_p95_ms": 50}
    result = busy(limits=limits)
    assert (result.winner, result.outcome) == (None, Outcome.INCONCLUSIVE)
    assert result.headline == "Not settled: nobody leads"
    quiet = {name: measured() for name in ("one", "two")}
    assert judge_bakeoff(file(limits=limits), quiet, {}, AT).outcome is Outcome.FAILED


def in_lanes() -> BakeoffResult:
    wanted = bars(slo={"max_ttft_ms": 150}, min_good_share=0.5)
    found = {
        "one": measured(lanes=(lane(wanted=wanted),)),
        "two": measured(lanes=(lane(slow=20, wanted=wanted),)),
    }
    lanes = {"chat": wanted.model_dump(mode="json", exclude_none=True)}
    goal = {"lane": "chat", "metric": "good_share"}
    return judge_bakeoff(file(lanes=lanes, optimise=[goal, "cost"]), found, {}, AT)


def test_a_lane_is_a_row_of_its_own_in_every_form():
    result = in_lanes()
    assert result.recommendation.startswith(
        "Take one (with 1 in flight): all 2 meet every limit; in goodput of chat one at 1 of the "
        "requests (0.951 to 1) is better than two at 0.667 of the requests (0.554 to 0.767)"
    )
    text, html = to_markdown(result), to_html(result)
    assert "| one, chat | met, 100% good |  | 100 | 10 | - |  | 10/s |" in text
    assert "| two | chat | met | 10/s | 1,000 | 10 | 66.7% (55.4% to 76.7%) |" in text
    for face in (text, html):
        assert "lane chat: 60 requests, 10 requests/s, Poisson, good with TTFT ≤ 150 ms" in face
        assert "TTFT p95 of chat at most 1000 ms; goodput of chat at least 50%" in face
        assert "Then the best in goodput of chat, then cost." in face
        assert "A lane is shown at its last step" in face
    assert "<h2>Every lane</h2>" in html
    assert "A lane is shown" not in to_html(judged())
    assert "<figcaption>Goodput of chat</figcaption>" in html
    again = BakeoffResult.model_validate_json(result.model_dump_json(by_alias=True))
    assert again == result


def test_another_slo_is_judged_from_what_was_measured():
    strict = bars(slo={"max_ttft_ms": 50}, min_good_share=0.5)
    found = {name: measured(lanes=(lane(wanted=bars()),)) for name in ("one", "two")}
    lanes = {"chat": strict.model_dump(mode="json", exclude_none=True)}
    result = judge_bakeoff(file(lanes=lanes), found, {}, AT)
    assert result.winner is None
    assert "good_share 0 of requests" in result.contestants[0].reasons[0]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_runs_nothing_fetches_nothing_and_every_tag_is_closed():
    text = to_html(judged())
    page = Page(text)
    assert page.open == []
    assert not {"script", "img", "iframe", "form"} & {tag for tag, _ in page.tags}
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert not re.findall(r"https?://|@import|url\(", text)
    assert "$" not in text
    assert "prefers-color-scheme: dark" in text


def test_text_of_others_is_only_text_in_every_form():
    wanted = file()
    found = {"one": measured(identity={"what": EVIL, "model_revision": EVIL})}
    result = judge_bakeoff(
        wanted, found, {"two": Unmeasured(outcome=Outcome.ERRORED, why=EVIL)}, AT
    )
    html, text = to_html(result), to_markdown(result)
    assert "<script" not in html
    assert "\u202e" not in html + text
    assert "&lt;script&gt;" in html
    assert re.search(r"(?<!\\)<", text) is None
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table[:4]} == {10}


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (0.95123, "0.951"), (93.14, "93.1"), (1234.5, "1,234"), (0.00012, "0.00012")],
)
def test_numbers_have_three_digits_that_count(value, said):
    assert plain(value) == said


def test_a_missing_upper_bound_is_shown_as_such():
    assert bounded(Number(low=1.0, value=2.0, high=None)) == "2 (1 to ∞)"
    assert bounded(None) == "-"
