"""JUnit XML that readers of test reports take, whatever a model answered."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.junit import to_junit
from engine_pipeline.gates.outcome import Outcome
from tests.unit.gates.report_samples import MIXED, NASTY, attempt, case, report

# As the XSDs of Jenkins' xUnit plug-in and of Ant have them, in the part that both share.
ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {
        *("name", "tests", "failures", "errors", "skipped"),
        *("time", "timestamp", "hostname"),
    },
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}


def read(*reports) -> ET.Element:
    return ET.fromstring(to_junit(reports).encode())


def check_dialect(root: ET.Element) -> None:
    for element in root.iter():
        assert set(element.attrib) <= ALLOWED[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for suite in root:
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(count) == str(len(suite.findall(f"testcase/{tag}")))
        assert len({(c.get("classname"), c.get("name")) for c in cases}) == len(cases)


def test_there_is_one_test_case_for_each_bar_and_each_golden_case():
    root = read(MIXED)
    check_dialect(root)
    bars, goldens = root
    assert len(bars.findall("testcase")) == len(MIXED.findings)
    assert [c.get("name") for c in goldens.findall("testcase")] == [c.id for c in MIXED.cases]
    assert root.get("tests") == str(len(MIXED.findings) + len(MIXED.cases))


def test_failures_errors_and_skips_are_told_apart():
    root = read(MIXED)
    ends = {c.get("name"): (c[0].tag, c[0].get("type")) for c in root.iter("testcase") if len(c)}
    assert ends == {
        "Score, all cases": ("failure", "failed"),
        "Cases that must pass": ("failure", "failed"),
        "Time to first token, p95": ("error", "too little evidence"),
        "Time per further token, p95": ("error", "could not judge"),
        "Speed": ("skipped", None),
        "lost": ("error", "could not judge"),
        "sum": ("failure", "failed"),
        "capital": ("failure", "failed"),
    }


def test_a_failed_case_says_what_was_asked_wanted_and_answered():
    (failure,) = read(MIXED).iterfind(".//testcase[@name='capital']/failure")
    assert failure.get("message") == "contains: want 'Paris' in it"
    assert failure.text is not None
    assert failure.text.splitlines() == [
        "contains: want 'Paris' in it",
        "asked: Why?",
        "answer: It is Rome.",
    ]


def test_the_same_report_gives_the_same_bytes():
    assert to_junit([MIXED, NASTY]) == to_junit([MIXED, NASTY])


def test_an_engine_that_did_not_load_has_a_suite_without_cases():
    check_dialect(read(report()))


def test_several_reports_make_one_document():
    root = read(MIXED, report())
    assert len(root) == 4
    assert root.get("failures") == "4"


def test_a_hostile_answer_is_text():
    root = read(NASTY)
    check_dialect(root)
    text = root.findtext(".//testcase[@name='hostile']/failure") or ""
    assert "<script>window.dirty" in text
    assert "[ESC][31m" in text
    assert "[U+202E RIGHT-TO-LEFT OVERRIDE]" in text


@given(st.text(st.characters(codec="utf-8")))
def test_any_answer_makes_well_formed_xml(answer):
    check_dialect(read(report(cases=(case("a", attempt(answer, Outcome.FAILED, answer)),))))
