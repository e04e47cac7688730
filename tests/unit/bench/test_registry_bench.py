"""The benchmarks of stores and listings run, on small sizes, and print what they promise."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, serving

BENCH = Path(__file__).parents[3] / "bench"
pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.usefixtures("s3_credentials")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    """Imports a module of bench/, which is a folder of scripts and no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCH:
            del sys.modules[name]


def rows(text: str) -> dict[str, list[str]]:
    """First cell → the others, of every row of every table."""
    cells = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def test_the_requests_of_every_move_are_counted(bench, tmp_path: Path, capsys) -> None:
    here = bench("project").prepare(tmp_path, tmp_path / "registry", events=2)
    bench("round_trips")._counted(here, (2,), answer_s=0.02)
    counted = rows(capsys.readouterr().out)
    for move in ("status", "lift the hold", "promote", "roll back"):
        until_then, trips, requests = map(int, counted[move][0].split(", "))
        assert 0 < until_then <= trips, move
        assert 0 < requests < 50, move


def test_transfers_are_compared_with_those_of_the_same_client(
    bench, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 1000)
    with serving(FakeS3()) as endpoint:
        bench("transfer")._bucket(S3Server(endpoint), tmp_path, path, 1, 0.000007)
    table = rows(capsys.readouterr().out)
    assert float(table["registry, add_file"][-1]) >= 0
    assert float(table["registry, materialise"][-1]) >= 0


def test_everything_that_looks_at_a_whole_registry_is_compared_with_its_peer(
    bench, tmp_path: Path, capsys
) -> None:
    scale, root = bench("scale"), tmp_path / "registry"
    here = bench("project").prepare(tmp_path, root, events=2)
    registry = scale.open_registry(here.url)
    index = scale.Index(registry, tmp_path / "index.sqlite", scale.NAMES)
    scale._whole_registry(registry, index, root, 2)
    scale._questions(registry, index, here, 1)
    table = rows(capsys.readouterr().out)
    for ours, peer in (("gc, plan", -2), ("index, first build", -1)):
        count, ratio = table[ours][0], table[ours][peer]
        assert count == "2", ours
        assert float(ratio) >= 0, ours
    assert "list, newest 50" in table
