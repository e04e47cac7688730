"""A bake-off's page in a real browser: wide and narrow, light and dark, decided and not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_pipeline.bakeoff.measured import Unmeasured
from engine_pipeline.bakeoff.page import to_html
from engine_pipeline.bakeoff.result import BakeoffResult, judge_bakeoff
from engine_pipeline.gates.outcome import Outcome
from tests.bakeoff_world import (
    AT,
    HERE,
    PLAIN,
    bars,
    file,
    lane,
    measured,
    performance,
    structured,
)
from tests.servers.chromium import find_chromium, look_at, running

pytestmark = [
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here: apt-get install chromium"
    ),
    pytest.mark.xdist_group("chromium"),
]
SIZES = {"desktop": (1280, 900), "tablet": (940, 900), "phone": (360, 740)}
# Of SmolLM2-135M at three precisions, by golden_prompts/bakeoffs/smollm2-cpu.yaml.
STORED = Path(__file__).parents[1] / "data" / "pages" / "bakeoff.json"
LONG = "a-very-long-name-of-a-contestant-that-goes-on-and-on"
HOSTILE = f"</style><script>window.dirty = 1</script>\u202eevil {'x' * 300}"


def page(kind: str) -> BakeoffResult:
    """A bake-off of four, one of whom is not there."""
    names = ("one", "two", LONG, "absent")
    who = [PLAIN["contestants"][0] | {"name": name} for name in names]
    chat = bars(slo={"max_ttft_ms": 150}, min_good_share=0.5)
    wanted = file(
        contestants=who,
        limits={"min_score": 0.5, "max_ttft_p95_ms": 500},
        lanes={"chat": chat.model_dump(mode="json", exclude_none=True)},
        optimise=["cost", {"lane": "chat", "metric": "e2e_p95_ms"}] if kind != "tied" else ["cost"],
    )
    lanes = {"lanes": (lane(slow=20, wanted=chat),)}
    text = HOSTILE if kind == "hostile" else "ours"
    found = {
        "one": measured(
            structured=structured(),
            device=HERE,
            identity={"what": text},
            lanes=(lane(wanted=chat),),
        ),
        "two": measured(
            passed=8, steps=(performance(ttft=200 if kind != "tied" else 100),), **lanes
        ),
        LONG: measured(passed=3, identity={"model_revision": text}, **lanes),
    }
    gone = Unmeasured(outcome=Outcome.ERRORED, why=f"{text}: no answer")
    return judge_bakeoff(wanted, found, {"absent": gone}, AT)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("chromium") / "profile") as address:
        yield address


CASES = [
    *(("decided", size, scheme) for size in sorted(SIZES) for scheme in ("light", "dark")),
    ("tied", "phone", "light"),
    ("hostile", "phone", "light"),
]
HEADLINES = {
    "decided": "Take one",
    "tied": "Too close to call: one and two",
    "hostile": "Take one",
}


@pytest.mark.parametrize(("kind", "size", "scheme"), CASES)
def test_the_page_fits_asks_for_nothing_and_shows_the_choice_at_once(
    browser, tmp_path, kind, size, scheme
):
    path = tmp_path / f"{kind}.html"
    path.write_text(to_html(page(kind)))
    width, height = SIZES[size]
    found = look_at(path.as_uri(), browser, width=width, height=height, scheme=scheme)
    facts = found.facts
    assert found.requests == [path.as_uri()]
    assert facts["overflow"] <= 0
    assert facts["wide"] == facts["squeezed"] == []
    assert facts["verdict"].endswith(HEADLINES[kind])
    assert facts["verdictBottom"] < height / 4
    assert facts["smallest"] >= 11
    shades = [int(part) for part in facts["background"].strip("rgb()").split(",")]
    assert max(shades) < 60 if scheme == "dark" else min(shades) > 200
    assert (facts["scripts"], facts["dirty"], found.complaints) == (0, None, [])


def test_a_stored_bakeoff_becomes_the_picture_in_the_docs(browser, tmp_path):
    path = tmp_path / "bakeoff.html"
    path.write_text(to_html(BakeoffResult.model_validate_json(STORED.read_bytes())))
    found = look_at(path.as_uri(), browser, width=1100, height=1620, scheme="light")
    assert found.facts["overflow"] <= 0
    assert found.facts["wide"] == found.facts["squeezed"] == found.complaints == []
    if kept := os.environ.get("ENGINE_CI_SCREENSHOTS"):
        (Path(kept) / "bakeoff.png").write_bytes(found.png)
