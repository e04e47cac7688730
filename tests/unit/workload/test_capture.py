"""A workload from a log: the counts of every known shape, and nothing of what was said."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.workload.capture import capture, histogram
from engine_pipeline.workload.file import (
    load_workload,
    pinned_workload,
    read_log,
    workload_text,
    write_workload,
)
from engine_pipeline.workload.lengths import Fixed, Histogram
from engine_pipeline.workload.log_line import Seen, read_line
from engine_registry.errors import Conflict, InvalidInput, NotFound

SECRET = "my account number is 4711 and my name is Ada"


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("shape", "at_s"),
    [
        ({"timestamp": 1700000000.5, "prompt_tokens": 7, "completion_tokens": 3}, 1700000000.5),
        ({"created": 1700000000, "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, 17e8),
        ({"ts": 1700000000500, "usage": {"input_tokens": 7, "output_tokens": 3}}, 1700000000.5),
        (
            {"time": "2023-11-14T22:13:20.500Z", "prompt_tokens": 7, "completion_tokens": 3},
            1700000000.5,
        ),
        # A proxy's payload, around the answer's own usage.
        (
            {
                "status": "success",
                "startTime": 1700000000.5,
                "model": "m",
                "response": {"usage": {"prompt_tokens": 7, "completion_tokens": 3}},
            },
            1700000000.5,
        ),
        # A trace in milliseconds from its start.
        ({"timestamp": 27482, "input_length": 7, "output_length": 3, "hash_ids": [1]}, 27.482),
        ({"prompt_tokens": 7, "completion_tokens": 3}, None),
    ],
)
def test_every_known_shape_says_its_lengths_and_its_time(shape, at_s):
    seen = read_line(line(**shape))
    assert isinstance(seen, Seen)
    assert (seen.prompt_tokens, seen.output_tokens) == (7, 3)
    assert seen.at_s == (None if at_s is None else pytest.approx(at_s))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"INFO: 200 OK", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not an object"),
        (line(prompt_tokens=3), "no output tokens"),
        (line(completion_tokens=3), "no prompt tokens"),
        (line(prompt_tokens=True, completion_tokens=3), "no prompt tokens"),
        (line(prompt_tokens=0, completion_tokens=3), "lengths outside 1 to 131072"),
        (line(prompt_tokens=10**9, completion_tokens=3), "lengths outside 1 to 131072"),
        (line(prompt_tokens=3, completion_tokens=3, status=500), "a request that failed"),
        (line(prompt_tokens=3, completion_tokens=3, status="failure"), "a request that failed"),
        (line(prompt_tokens=3, completion_tokens=3, error="x"), "a request that failed"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(data, why):
    assert read_line(data) == why


def log(times: list[float], **fields: Any) -> list[bytes]:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return [line(timestamp=1.7e9 + at, **usage, **fields) for at in times]


def test_requests_that_come_by_chance_are_poisson_at_their_rate():
    source, at, times = random.Random(1), 0.0, []
    for _ in range(3000):
        at += source.expovariate(4)
        times.append(at)
    found = capture(log(times), name="w")
    assert found.arrival.kind == "poisson"
    assert found.arrival.rate_per_s == pytest.approx(4, rel=0.06)
    assert found.captured is not None
    assert found.captured.dispersion == pytest.approx(1, abs=0.3)


def test_requests_that_come_together_are_bursts_of_that_size():
    source, at, times = random.Random(1), 0.0, []
    for _ in range(600):
        at += source.expovariate(0.5)
        times += [at] * 8
    found = capture(log(times), name="w")
    assert found.arrival.kind == "bursts"
    assert found.arrival.size == pytest.approx(8, abs=2)
    assert found.arrival.rate_per_s == pytest.approx(4, rel=0.1)


def test_the_order_of_lines_does_not_matter():
    times = [float(n) for n in range(600)]
    assert capture(log(times), name="w") == capture(log(times[::-1]), name="w")


def test_a_log_without_times_says_so_instead_of_inventing_a_rate():
    found = capture([line(prompt_tokens=5, completion_tokens=2)] * 400, name="w")
    assert found.arrival.kind == "concurrency"
    assert found.captured is not None
    assert "tells no times" in found.captured.notes[0]


def test_few_requests_are_not_called_bursty():
    found = capture(log([0, 0, 0, 0, 50, 50, 50, 50]), name="w")
    assert found.arrival.kind == "poisson"
    assert found.captured is not None
    assert "too few requests" in found.captured.notes[0]


def test_skipped_lines_are_counted_by_reason():
    lines = [*log([0, 1]), b"", b"oops", b"{}", b"oops"]
    found = capture(lines, name="w").captured
    assert found is not None
    assert (found.lines, found.skipped) == (2, {"no prompt tokens": 1, "not JSON": 2})


def test_a_log_of_which_no_line_can_be_used_is_refused():
    with pytest.raises(InvalidInput, match="2 × not JSON") as caught:
        capture([b"a", b"b"], name="w")
    assert caught.value.name == "workload-log-unusable"
    with pytest.raises(InvalidInput, match="it is empty"):
        capture([], name="w")


def test_one_length_is_fixed_and_few_are_counted_one_by_one():
    assert histogram([7, 7]) == Fixed(kind="fixed", tokens=7)
    found = histogram([7, 9, 9])
    assert found == Histogram(kind="histogram", edges=(7, 8, 9, 10), counts=(1, 0, 2))


def test_many_lengths_go_into_bins_that_keep_their_quantiles():
    source = random.Random(3)
    values = [round(source.lognormvariate(6, 1)) + 1 for _ in range(5000)]
    found = histogram(values)
    assert isinstance(found, Histogram)
    assert sum(found.counts) == 5000
    assert len(found.counts) <= 40
    for q in (0.1, 0.5, 0.9, 0.99):
        assert found.at(q) == pytest.approx(sorted(values)[int(q * 5000)], rel=0.15)


def test_blocks_that_come_again_are_a_shared_prefix():
    # Of four blocks each, the first three are one of two system prompts.
    lines = [
        line(timestamp=n, input_length=2048, output_length=8, hash_ids=[n % 2, 10, 20, 100 + n])
        for n in range(200)
    ]
    found = capture(lines, name="w").shared_prefix
    assert found is not None
    assert found.share == pytest.approx(0.75, abs=0.02)
    assert found.prefixes == 2


def test_the_servers_cache_stands_in_where_there_are_no_blocks():
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 40}}
    found = capture([line(usage={**usage, "completion_tokens": 5})] * 20, name="w")
    assert found.shared_prefix is not None
    assert found.shared_prefix.share == 0.4


def chats(system: str) -> list[bytes]:
    return [
        line(
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": f"{n} {SECRET} " + "x" * 600},
            ],
            prompt_tokens=400,
            completion_tokens=5,
        )
        for n in range(50)
    ]


def test_a_common_system_prompt_is_found_in_texts_and_no_text_is_kept():
    found = capture(chats("You are helpful. " * 60), name="w")
    assert found.shared_prefix is not None
    assert found.shared_prefix.share == pytest.approx(0.62, abs=0.06)
    assert found.shared_prefix.prefixes == 1
    written = workload_text(found)
    assert not [word for word in (SECRET, "Ada", "4711", "helpful") if word in written]


def test_a_captured_workload_is_read_back_as_it_was(tmp_path: Path):
    made = capture(chats("hello " * 200), name="w")
    path = tmp_path / "workloads" / "w.yaml"
    write_workload(path, made)
    assert load_workload(path) == made
    assert pinned_workload(tmp_path, "workloads/w.yaml", made.digest) == made


def test_a_workload_is_not_written_over(tmp_path: Path):
    path = tmp_path / "w.yaml"
    path.write_text("mine")
    with pytest.raises(Conflict, match="is there already"):
        write_workload(path, capture(log([0, 1]), name="w"))
    assert path.read_text() == "mine"


def test_another_workload_than_the_pinned_one_is_refused_with_both_digests(tmp_path: Path):
    made = capture(log([0, 1]), name="w")
    write_workload(tmp_path / "w.yaml", made)
    other = made.model_copy(update={"seed": 9}).digest
    with pytest.raises(InvalidInput) as caught:
        pinned_workload(tmp_path, "w.yaml", other)
    assert made.digest.short in caught.value.message
    assert other.short in caught.value.message
    assert caught.value.name == "workload-not-the-pinned-one"


def test_a_compressed_log_is_read_and_a_cut_one_refused(tmp_path: Path):
    path = tmp_path / "a.jsonl.gz"
    whole = gzip.compress(b"\n".join(log([0, 1, 2])))
    path.write_bytes(whole)
    assert len(list(read_log(path))) == 3
    path.write_bytes(whole[:-9])
    with pytest.raises(InvalidInput, match="not a whole .gz file"):
        list(read_log(path))
    with pytest.raises(NotFound, match="no such log"):
        list(read_log(tmp_path / "none"))


def test_a_line_without_end_is_skipped_and_the_next_one_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("engine_pipeline.workload.file._MAX_LINE_BYTES", 100)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 950 + b"\n" + b"\n".join(log([0, 1])) + b"\n")
    found = capture(read_log(path), name="w").captured
    assert found is not None
    assert (found.lines, found.skipped) == (2, {"not JSON": 1})
