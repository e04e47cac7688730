"""The comparison of load clients: the truth that they are held against, and their errors."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def load_client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("load_client")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCH:
            del sys.modules[name]


def test_the_server_keeps_to_its_delays_and_tells_what_it_did_once(load_client, tmp_path):
    load_client.TOKENS = 3
    with load_client.delays() as url:
        seen = load_client.ours(load_client.Run(url, 2, 4, tmp_path))
        truth = load_client.truth(url)
        assert load_client.truth(url) == []
    # The warm-up is among what the server did.
    assert (len(seen), len(truth)) == (4, 5)
    assert min(truth) >= load_client.TTFT_MS - 2
    # The client never sees a token before it was written.
    assert max(seen) >= min(truth)


def test_an_error_is_the_distance_to_the_truth_on_either_side(load_client):
    errors = load_client.Errors()
    errors.add([199.0, 230.0], [200.0, 204.0])
    assert (errors.p50, errors.p99) == ([1.0], [26.0])
    assert (errors.seen_p50, errors.seen_p99) == ([199.0], [230.0])


def test_a_ratio_above_one_says_that_a_peer_errs_more(load_client, capsys):
    mine, theirs = load_client.Errors(), load_client.Errors()
    mine.add([201.0], [200.0])
    theirs.add([204.0], [200.0])
    load_client.table(1, 1, {load_client.OURS: mine, "peer": theirs})
    assert capsys.readouterr().out.splitlines()[-1].endswith("| 204.0 | 4.00 | 4.0 |")
