"""The page: verdict first, failing cases first, words marked, nothing of a model obeyed."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.differences import NoLive
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.lane_bars import LaneBars
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Baseline, PairedResult
from engine_pipeline.gates.report import Report
from engine_pipeline.gates.template import ChatVerdict, TemplateResult
from engine_registry.documents import canonical_json
from tests.unit.gates.report_samples import (
    BESIDE,
    HUGE,
    LIVE,
    MIXED,
    NASTY,
    POLICY,
    attempt,
    case,
    finding,
    in_turn,
    lane,
    parity,
    report,
    speed,
)

NOBODY = NoLive(reason="nothing was live on m/t/prod")
VOID = {"meta", "link", "br", "img"}
# Every element that the page itself writes.
OURS = set(
    [
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "main",
        "header",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "p",
        "ul",
        "li",
        "span",
        "code",
        "strong",
        "b",
        "small",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "div",
        "figure",
        "figcaption",
        "svg",
        "path",
        "circle",
        "text",
        "i",
        "article",
        "pre",
        "ins",
        "del",
        "dl",
        "dt",
        "dd",
    ]
)


class Read(HTMLParser):
    """Elements, attributes and text; fails on what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome.PASSED, "✓passed"),
        (Outcome.FAILED, "✕failed"),
        (Outcome.ERRORED, "?could not judge"),
        (Outcome.INCONCLUSIVE, "≈too little evidence"),
        (Outcome.SKIPPED, "–not judged"),
    ],
)
def test_the_verdict_is_the_first_thing_said_in_words_and_with_a_sign(outcome, word):
    page = Read(to_html(report(finding("score", outcome, "0.5")), NOBODY))
    body = page.text.split("on " + report().engine.short, 2)[1].strip()
    assert body.startswith(word)


def test_why_comes_right_after_the_verdict():
    text = Read(to_html(MIXED, NOBODY)).text
    assert text.index("score: 0.500, want at least 0.900") < text.index("Live and candidate")
    assert "Judging it again will not help" in text


def test_no_baseline_is_a_state_of_its_own():
    text = Read(to_html(MIXED, NOBODY)).text
    assert "No baseline: nothing was live on m/t/prod." in text
    assert text.count("no baseline") >= len(MIXED.findings)
    with_live = Read(to_html(MIXED, BESIDE)).text
    assert "Live is m/t/prod, release 3" in with_live
    assert "no baseline" not in with_live


def test_failing_cases_come_first_and_must_cases_before_them():
    text = Read(to_html(MIXED, BESIDE)).text
    goldens = text.split("Golden prompts")[1]
    places = [goldens.index(said) for said in ("Rome", "sum is 5", "http-503", "violets are pink")]
    assert places == sorted(places)


def test_the_words_that_differ_from_lives_answer_are_marked():
    page = to_html(MIXED, BESIDE)
    assert "It is <del>Paris</del>." in page
    assert "It is <ins>Rome</ins>." in page
    assert "Passed, with another answer than live’s (1)" in page


def test_a_case_says_at_which_token_it_parts_from_a_parent_where_the_report_knows_tokens():
    mine = report(cases=MIXED.cases, parity=(parity("It is Paris."),))
    card = to_html(mine, BESIDE).split("<h4>capital</h4>")[1].split("</article>")[0]
    said = "against m/t-fp16: after 2 of 4 tokens the parent says &#x27;It is Paris.&#x27;, "
    assert f"{said}the candidate ends (a change of mind, margin 3.20)." in card
    other = to_html(mine, BESIDE).split("<h4>sum</h4>")[1].split("</article>")[0]
    assert "tokens" not in other


def test_the_page_says_that_words_are_marked_where_there_are_two_answers():
    assert "the words that differ are marked" in to_html(MIXED, BESIDE)
    assert "the words that differ are marked" not in to_html(MIXED, NOBODY)


def test_answers_with_hardly_a_word_in_common_are_not_struck_through():
    mine = report(cases=(case("sum", attempt("Zebras gallop quickly", Outcome.FAILED, "x")),))
    page = to_html(mine, BESIDE)
    assert "<del>" not in page
    assert "Zebras gallop quickly" in page


def test_the_plots_say_in_words_what_they_draw():
    page = to_html(MIXED, BESIDE)
    assert page.count("<svg") == 3
    assert "candidate: p50 185 ms, p95 beyond measure (60 requests, 6 failed)" in page
    assert "live: p50 129 ms, p95 156 ms (60 requests)" in page
    assert "bar on p95: 500 ms, outside this picture" in page
    assert "bar on p95: 90 ms, outside this picture" in page


def test_a_line_ends_below_the_top_when_requests_failed():
    page = to_html(report(performance=speed(100.0, failed=30)), NOBODY)
    (path,) = re.findall(r'class="line candidate" d="([^"]*)"', page)[:1]
    top = min(float(y) for y in re.findall(r"V([\d.]+)", path))
    assert math.isclose(top, 10 + 0.5 * (190 - 36), abs_tol=0.1)


@pytest.mark.parametrize("times", [(5.0,), (0.0, 0.0), (1e-6, 9e5), (250.0, 250.0001)])
def test_any_spread_of_times_can_be_drawn(times):
    result = speed(1.0)
    samples = [result.samples[0].model_copy(update={"ttft_ms": t, "tpot_ms": t}) for t in times]
    drawn = report(performance=result.model_copy(update={"samples": tuple(samples)}))
    page = to_html(drawn, NOBODY)
    assert page.count("<svg") == 3
    assert "nan" not in page.lower().split("<main>")[1]


def test_a_run_that_lost_every_request_draws_nothing():
    assert "<svg" not in to_html(report(performance=speed(100.0, failed=60)), NOBODY)


def test_each_step_of_a_lane_draws_its_times_beside_those_of_lives_same_lane():
    mine = report(lanes=(lane(200.0, steps=(1, 4)),))
    assert to_html(mine, NOBODY).count("<svg") == 6
    live = report(engine=b"live", lanes=(lane(100.0, steps=(1, 4)),))
    page = to_html(mine, type(BESIDE)(named="x", attached=live.digest, report=live))
    at_4 = page.split("60 requests, 4 in flight")[1]
    assert "live: p50 429 ms, p95 456 ms (60 requests)" in at_4
    assert "candidate: p50 829 ms, p95 856 ms (60 requests)" in at_4
    other = report(engine=b"live", lanes=(lane(100.0),))
    page = to_html(mine, type(BESIDE)(named="x", attached=live.digest, report=other))
    assert "live: p50" not in page


def test_a_lane_shows_the_bar_on_its_p95_and_what_it_lost():
    tried = lane(100.0, failed=6)
    bars = LaneBars(workload=tried.workload, ceilings={"ttft_p95_ms": 130.0})
    policy = POLICY.model_copy(update={"lanes": {"interactive": bars}})
    page = to_html(report(lanes=(tried,), policy=policy), NOBODY)
    assert page.count("bar on p95: 130 ms") == 1
    assert page.count('class="line limit"') == 1
    assert "p95 beyond measure (60 requests, 6 failed)" in page


def test_a_comparison_in_turn_draws_both_engines_and_the_ratio_of_every_round_that_counts():
    page = to_html(report(paired=in_turn(slower=1.2, rounds=8, lost=1)), NOBODY)
    figures = page.split("In turn with live</h3>")[1].split("<h2")[0]
    assert figures.count("<svg") == 3
    assert "candidate: p50 144 ms, p95 169 ms (168 requests, 8 failed)" in figures
    assert "live: p50 118 ms, p95 136 ms (160 requests)" in figures
    compared = in_turn().comparisons
    assert figures.count("<circle") == 8 * len(compared) > 0
    assert figures.count('class="line limit"') == len(compared)
    assert "Time to first token, p50: 1.2" in figures


def test_where_the_dots_of_a_ratio_lie_is_told_by_the_scale_beneath():
    page = to_html(report(paired=in_turn(slower=1.5)), NOBODY)
    figure = page.split("round by round</figcaption>")[1]
    live = float(re.search(r'class="line live" d="M([\d.]+)', figure)[1])
    one = next(
        x for x, said in re.findall(r'<text x="([\d.]+)" y[^>]*>([\d.]+)<', figure) if said == "1"
    )
    assert live == float(one)
    assert min(float(x) for x in re.findall(r'cx="([\d.]+)"', figure)) > live


def test_a_comparison_without_a_round_draws_nothing():
    nobody = Baseline(named="m/t/prod", engine=None, why="nothing is live")
    none = PairedResult(baseline=nobody, outcome=Outcome.SKIPPED, reason="nothing is live")
    page = to_html(report(paired=none), NOBODY)
    assert "Live: nobody (nothing is live)" in page
    assert "<svg" not in page


def test_speed_that_was_not_measured_says_why():
    why = finding("performance", Outcome.SKIPPED, "the policy asks for none")
    text = Read(to_html(report(why), NOBODY)).text
    assert "Speed was not judged: the policy asks for none." in text


def test_each_parent_has_a_section_with_every_measure_and_where_answers_part():
    text = Read(to_html(MIXED, NOBODY)).text
    assert "Parity with m/t-fp16 (engine" in text
    assert "✕failed prefix agreement: 0.8" in text
    assert "–not judged KL: no log probabilities" in text
    assert "capital: after 2 of 4 tokens, a change of mind, margin 3.20" in text
    assert "Parity" not in Read(to_html(LIVE, NOBODY)).text


def test_what_was_measured_where_is_told():
    text = Read(to_html(MIXED, BESIDE)).text
    for said in ("h100-sxm-80gb", "driver 570.86.10", "one H100, 26 cores", "not measured by this"):
        assert said in text


def test_nothing_of_a_hostile_model_is_obeyed():
    page = Read(to_html(NASTY, BESIDE))
    assert page.tags <= OURS
    assert not [name for name in page.attributes if name.startswith("on") or name == "src"]
    assert "<script>window.dirty" in page.text
    assert "[ESC][31m" in page.text
    assert "[U+202E RIGHT-TO-LEFT OVERRIDE]" in page.text
    assert "${bars} $cases" in page.text
    assert not set(page.text) & set("\x00\x07\x1b\u202e\u2066\u200b\ufeff\u2028\u0085")


def test_a_huge_answer_is_cut_with_its_length_said():
    page = to_html(NASTY, BESIDE)
    assert f"… {len(HUGE) - 4000:,} more characters are not shown" in page
    assert len(page) < 150_000


def test_an_empty_answer_is_said_to_be_empty():
    assert "(empty)" in to_html(NASTY, NOBODY)


def test_a_suite_of_thousands_still_opens():
    many = tuple(case(f"c{n}", attempt("x " * 1000, Outcome.FAILED, "y")) for n in range(2000))
    page = to_html(report(cases=many), NOBODY)
    assert "And 1850 more" in page
    assert len(page) < 1_000_000


def test_the_page_allows_itself_no_script_and_no_request():
    page = to_html(LIVE, NOBODY)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'http-equiv="Content-Security-Policy" content="{policy}"' in page
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:)[a-z/.]""", page)


def test_the_same_report_gives_the_same_page():
    assert to_html(MIXED, BESIDE) == to_html(MIXED, BESIDE)


@given(st.text(max_size=80), st.text(max_size=80))
def test_whatever_was_answered_the_page_is_whole(mine, theirs):
    candidate = report(cases=(case("a", attempt(mine, Outcome.FAILED, mine)),))
    live = report(engine=b"live", cases=(case("a", attempt(theirs)),))
    page = Read(to_html(candidate, type(BESIDE)(named="x", attached=live.digest, report=live)))
    assert page.tags <= OURS


def test_each_golden_chat_and_each_wrong_token_has_its_verdict_and_words():
    guard = TemplateResult(
        outcome=Outcome.FAILED,
        reason="one-turn: its prompt differs",
        chats=(
            ChatVerdict(id="one-turn", outcome=Outcome.FAILED, reason="<script>x</script>"),
            ChatVerdict(id="two-turns", outcome=Outcome.PASSED, reason="as recorded"),
        ),
        special_tokens={"<|im_end|>": "is 3 tokens, want the one token 2"},
    )
    page = to_html(report(template=guard), NOBODY)
    section = page.split("Chat template and tokenizer</h2>")[1].split("<h2")[0]
    for said in (
        "one-turn",
        "two-turns",
        "as recorded",
        "&lt;|im_end|&gt;",
        "want the one token 2",
    ):
        assert said in section
    assert "<script" not in section
    told = to_markdown(report(template=guard))
    assert "- two-turns: passed: as recorded" in told
    assert "Chat template and tokenizer" not in to_html(report(), NOBODY)


def test_a_stored_report_makes_the_page_that_it_made_when_it_was_new():
    """Stored, its keys are sorted; the page must not follow their order."""
    measured = speed(100.0, failed=2)
    failed = dict(sorted({"timeout": 1, "refused": 1}.items(), reverse=True))
    fresh = report(
        definitions=dict(sorted(LIVE.definitions.items(), reverse=True)),
        performance=measured.model_copy(update={"failed": failed}),
    )
    stored = Report.model_validate_json(canonical_json(fresh))
    assert list(stored.definitions) != list(fresh.definitions)
    assert to_markdown(stored) == to_markdown(fresh)
    assert to_html(stored, NOBODY) == to_html(fresh, NOBODY)
