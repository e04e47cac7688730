"""The benchmarks' own arithmetic, and that what they measure is the real thing."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import lift_hold
from engine_registry.record import Actor
from engine_registry.registry import open_registry, utc_now
from engine_registry.store import Depth
from engine_registry.testing import samples

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of bench/, which is a folder of scripts and no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCH:
            del sys.modules[name]


def test_a_percentile_is_a_value_that_was_measured(bench) -> None:
    measure: ModuleType = bench("measure")
    taken = [float(n) for n in range(100, 0, -1)]
    assert measure.percentile(taken, 0.5) == 50
    assert measure.percentile(taken, 0.99) == 99
    assert measure.percentile([3.0], 0.99) == 3


def test_a_ratio_above_one_says_that_the_row_is_faster_than_the_peer(bench, capsys) -> None:
    measure: ModuleType = bench("measure")
    table = measure.Table(title="t", peers={"other": "other"})
    table.add({"ours": [1.0, 2.0, 9.0], "other": [3.0, 4.0, 5.0]})
    table.print()
    ours, other = capsys.readouterr().out.splitlines()[-2:]
    assert [cell.strip() for cell in ours.split("|")[1:-1]] == [
        "ours", "3", "2.00", "1.00", "9.00", "2.00",
    ]  # fmt: skip
    assert other.split("|")[-2].strip() == "-"


def test_repeats_are_interleaved_and_warm_up_is_not_counted(bench) -> None:
    measure: ModuleType = bench("measure")
    order: list[str] = []
    cases = [measure.Case(name=n, run=lambda n=n: order.append(n)) for n in "ab"]
    taken = measure.interleaved(cases, repeats=2, warm_up=1)
    assert order == list("ababab")
    assert {name: len(times) for name, times in taken.items()} == {"a": 2, "b": 2}


def test_scratch_space_is_gone_after_a_failure_too(bench, tmp_path: Path) -> None:
    measure: ModuleType = bench("measure")

    def fail() -> None:
        with measure.bench("Claim.", tmp_path) as scratch:
            (scratch / "big").write_bytes(b"x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_quickly_filled_registry_holds_the_same_engines_as_one_filled_by_the_acts(
    bench, tmp_path: Path
) -> None:
    quick = bench("fill").quick_registry(tmp_path / "quick")
    real = open_registry(f"file://{tmp_path / 'real'}")
    for registry in (real, quick):
        samples.sample_engine(open_registry(registry.url), "first")  # founds it
        samples.sample_engine(registry, "second")

    def names(root: Path) -> dict[str, bytes]:
        stored = open_registry(f"file://{root}").stores.inventory.files()
        # Who was touched when is told by the clock and a random name.
        told = [f.name for f in stored if not f.name.startswith(("registry.json", "touched/"))]
        return {name: (root / name).read_bytes() for name in told}

    assert names(tmp_path / "quick") == names(tmp_path / "real")


def test_filling_records_as_many_engines_as_asked_for_and_they_are_whole(
    bench, tmp_path: Path
) -> None:
    root = tmp_path / "registry"
    samples.sample_engine(open_registry(f"file://{root}"))
    bench("fill").fill(root, tmp_path / "scratch", held=1, count=5)
    engines = open_registry(f"file://{root}").engines
    found = list(engines.all_engines())
    assert len(found) == 5
    for engine in found:
        engines.check_engine(engine, Depth.FULL)


def test_the_project_of_the_moves_promotes_and_rolls_back(bench, tmp_path: Path) -> None:
    here = bench("project").prepare(tmp_path, tmp_path / "registry", events=4)
    desk = Desk(
        registry=open_registry(here.url), actor=Actor(name="a", proved_by="b"), clock=utc_now
    )
    for _ in range(2):
        lift_hold(desk, here.channel, reason="again")
        promote(
            desk,
            here.second,
            here.channel,
            policy=here.policy,
            wanted=here.wanted,
            reason="again",
            overrides=("bad",),
        )
        assert desk.registry.channels.state(here.channel).live.number == here.second.number
        roll_back(desk, here.channel, reason="again")
        assert desk.registry.channels.state(here.channel).live.number != here.second.number
