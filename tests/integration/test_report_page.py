"""The report's page in a real browser: wide and narrow, light and dark, from friend and foe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_pipeline.gates.differences import Live, NoLive
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Report
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from tests.servers.chromium import Seen, find_chromium, look_at, running
from tests.unit.gates.report_samples import (
    BESIDE,
    MIXED,
    NASTY,
    finding,
    in_turn,
    lane,
    report,
)

pytestmark = [
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here: apt-get install chromium"
    ),
    pytest.mark.xdist_group("chromium"),
]
# Every plot that there is, of a candidate that fails in each.
LOADS = report(
    finding("interactive at 4: ttft_p95_ms", Outcome.FAILED, "859 ms, want at most 500 ms"),
    lanes=(lane(200.0, failed=3, steps=(1, 4)),),
    paired=in_turn(lost=1),
)
PAGES = {
    "mixed": (MIXED, BESIDE),
    "no-baseline": (MIXED, NoLive(reason="nothing was live on m/t/prod")),
    "hostile": (NASTY, BESIDE),
    "loads": (LOADS, BESIDE),
}
# The tablet is the narrowest that still has a table of columns.
SIZES = {"desktop": (1280, 900), "tablet": (940, 900), "phone": (360, 740)}
# Of SmolLM2-135M as INT8, which is live, and as INT4, by the gate of this repository.
STORED = Path(__file__).parents[1] / "data" / "pages"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("chromium") / "profile") as address:
        yield address


def seen(browser: str, tmp_path: Path, page: str, size: str, scheme: str) -> Seen:
    path = tmp_path / f"{page}.html"
    # As a browser meets it at its worst: everything unfolded.
    path.write_text(to_html(*PAGES[page]).replace("<details>", "<details open>"))
    width, height = SIZES[size]
    found = look_at(path.as_uri(), browser, width=width, height=height, scheme=scheme)
    assert found.requests == [path.as_uri()]
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", sorted(SIZES))
@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_page_fits_asks_for_nothing_and_shows_its_verdict_at_once(
    browser, tmp_path, page, size, scheme
):
    found = seen(browser, tmp_path, page, size, scheme)
    facts = found.facts
    assert facts["overflow"] <= 0
    assert facts["wide"] == facts["squeezed"] == []
    assert facts["verdict"].endswith("failed")
    assert facts["verdictBottom"] < SIZES[size][1] / 5
    assert facts["smallest"] >= 11
    shades = [int(part) for part in facts["background"].strip("rgb()").split(",")]
    assert max(shades) < 60 if scheme == "dark" else min(shades) > 200
    assert found.png.startswith(PNG)
    assert (facts["scripts"], facts["dirty"], found.complaints) == (0, None, [])


def test_two_stored_reports_become_the_picture_in_the_docs(browser, tmp_path):
    candidate, live = (
        Report.model_validate_json((STORED / f"gate-{who}.json").read_bytes())
        for who in ("candidate", "live")
    )
    beside = Live(
        named="smollm2-135m-instruct/cpu-x86-64-v3/prod, release 1",
        attached=Digest.of(canonical_json(live)),
        report=live,
    )
    above, heading, below = to_html(candidate, beside).partition("<h2>Golden prompts")
    path = tmp_path / "gate-report.html"
    path.write_text(above + heading + below.replace("<details>", "<details open>", 1))
    found = look_at(path.as_uri(), browser, width=1100, height=2900, scheme="light")
    assert found.facts["overflow"] <= 0
    assert found.facts["wide"] == found.facts["squeezed"] == found.complaints == []
    assert found.facts["verdict"].endswith("passed")
    if kept := os.environ.get("ENGINE_CI_SCREENSHOTS"):
        (Path(kept) / "gate-report.png").write_bytes(found.png)


def test_what_would_run_or_be_fetched_is_seen_by_this_test(browser, tmp_path):
    planted = "<script>window.dirty = 1</script><img src='http://127.0.0.1:9/x.png'></main>"
    path = tmp_path / "planted.html"
    text = to_html(*PAGES["mixed"]).replace("</main>", planted)
    path.write_text(text)
    guarded = look_at(path.as_uri(), browser, width=800, height=600, scheme="light")
    assert guarded.facts["scripts"] == 1
    assert guarded.facts["dirty"] is None
    assert guarded.complaints
    path.write_text(text.replace("Content-Security-Policy", "x-none"))
    open_one = look_at(path.as_uri(), browser, width=800, height=600, scheme="light")
    assert open_one.facts["dirty"] == "1"
    assert "http://127.0.0.1:9/x.png" in open_one.requests
