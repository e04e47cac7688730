"""The step cache: whole entries or none, one maker per key, damage found and mended."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest

from engine_pipeline.build.plan import Step
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.progress import Silent
from engine_pipeline.runners.port import StepResult
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Unavailable

RESULT = StepResult(wall_s=1.5, peak_rss_bytes=1000)
LIMIT_S = 30


def make_step(name: str = "toy", outputs: tuple[str, ...] = ("a.bin", "sub/b.bin")) -> Step:
    return Step(name=name, title="Toy", argv=("x",), outputs=outputs, key=Digest.of(name.encode()))


def good(staging) -> StepResult:
    (staging.output / "a.bin").write_bytes(b"aaa")
    (staging.output / "sub").mkdir()
    (staging.output / "sub" / "b.bin").write_bytes(b"bb")
    (staging.scratch / "thrown-away").write_bytes(b"x")
    return RESULT


def never(staging) -> StepResult:
    pytest.fail("made again")


@dataclass
class Notes(Silent):
    said: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def cache(tmp_path):
    return StepCache(tmp_path / "cache")


def leftovers(cache) -> list[str]:
    staging = cache.root / "staging"
    return [path.name for path in staging.iterdir()] if staging.exists() else []


def test_a_finished_step_is_not_made_again(cache):
    first = cache.obtain(make_step(), good, Silent())
    second = cache.obtain(make_step(), never, Silent())
    assert (first.reused, second.reused) == (False, True)
    assert second.record == first.record
    assert (second.output / "a.bin").read_bytes() == b"aaa"
    assert (second.record.wall_s, second.record.peak_rss_bytes) == (1.5, 1000)
    assert leftovers(cache) == []


def test_outputs_are_read_only_and_scratch_files_are_gone(cache):
    kept = cache.obtain(make_step(), good, Silent())
    assert {path.stat().st_mode & 0o777 for path in kept.output.rglob("*.bin")} == {0o444}
    assert sorted(path.name for path in kept.output.parent.iterdir()) == ["output", "step.json"]


def test_nothing_is_found_before_anything_was_made(cache):
    assert cache.find(make_step().key) is None
    assert not cache.root.exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda out: (out / "extra").write_bytes(b"x"), "not expected extra"),
        (lambda out: (out / "a.bin").unlink(), "missing a.bin"),
        (lambda out: (out / "a.bin").write_bytes(b""), "empty a.bin"),
        (
            lambda out: ((out / "a.bin").unlink(), (out / "a.bin").symlink_to("/etc/hostname")),
            "not a regular file a.bin",
        ),
        (lambda out: (out / "link").symlink_to(out), "not expected link"),
    ],
)
def test_anything_but_exactly_the_promised_files_is_refused_and_not_kept(cache, spoil, said):
    def make(staging):
        good(staging)
        spoil(staging.output)
        return RESULT

    with pytest.raises(EngineCIError) as caught:
        cache.obtain(make_step(), make, Silent())
    assert caught.value.name == "step-output-differs"
    assert said in caught.value.message
    assert cache.find(make_step().key) is None
    assert leftovers(cache) == []


def test_a_step_that_fails_leaves_nothing_but_its_log(cache):
    def make(staging):
        good(staging)
        staging.log.write_text("why")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.obtain(make_step(), make, Silent())
    assert cache.find(make_step().key) is None
    assert leftovers(cache) == []
    assert (cache.root / "logs" / f"{make_step().key.hex}.txt").read_text() == "why"


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "step.json").unlink(),
        lambda entry: (entry / "step.json").write_bytes(b"{}"),
        lambda entry: (entry / "step.json").write_bytes((entry / "step.json").read_bytes()[:-9]),
        lambda entry: (entry / "output" / "a.bin").unlink(),
        lambda entry: rewrite(entry / "output" / "a.bin", b"aa"),
        lambda entry: rewrite(entry / "output" / "a.bin", b"abc"),
    ],
)
def test_a_damaged_entry_is_no_hit_and_is_made_anew(cache, damage):
    entry = cache.obtain(make_step(), good, Silent()).output.parent
    damage(entry)
    notes = Notes()
    assert cache.find(make_step().key) is None
    again = cache.obtain(make_step(), good, notes)
    assert not again.reused
    assert "damaged" in notes.said[0]
    assert (again.output / "a.bin").read_bytes() == b"aaa"
    assert leftovers(cache) == []


def rewrite(path, data):
    before = path.stat()
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))


def test_an_entry_under_another_key_is_damage(cache):
    first = cache.obtain(make_step(), good, Silent()).output.parent
    other = make_step("other")
    first.rename(first.with_name(other.key.hex))
    assert cache.find(other.key) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_and_tells_need_and_what_is_free(cache, number):
    def make(staging):
        good(staging)
        raise OSError(number, os.strerror(number))

    step = make_step().model_copy(update={"disk_bytes": 12_345_678})
    with pytest.raises(Unavailable) as caught:
        cache.obtain(step, make, Silent())
    assert caught.value.name == "disk-full"
    assert "12,345,678" in caught.value.message
    assert "free" in caught.value.message
    assert leftovers(cache) == []


def test_a_place_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable) as caught:
        StepCache(tmp_path / "file").obtain(make_step(), good, Silent())
    assert caught.value.name == "cache-not-usable"


def test_of_many_that_want_one_key_exactly_one_makes_it(cache):
    made, results = [], []
    gate = threading.Barrier(8)

    def make(staging):
        made.append(1)
        return good(staging)

    def want():
        gate.wait()
        # flock excludes descriptors, so a thread with its own stands for a process.
        results.append(StepCache(cache.root).obtain(make_step(), make, Silent()))

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert sorted(result.reused for result in results) == [False] + [True] * 7


def test_who_waits_is_told_for_whom(cache):
    inside, told = threading.Event(), threading.Event()

    class Waiting(Silent):
        def note(self, text):
            self.text = text
            told.set()

    def make(staging):
        inside.set()
        assert told.wait(LIMIT_S)
        return good(staging)

    waiting = Waiting()
    first = threading.Thread(target=lambda: cache.obtain(make_step(), make, Silent()))
    first.start()
    assert inside.wait(LIMIT_S)
    second = StepCache(cache.root).obtain(make_step(), never, waiting)
    first.join()
    assert second.reused
    assert f"waiting for process {os.getpid()} on" in waiting.text


MAKER = """
import sys, time
from pathlib import Path
from engine_pipeline.build.plan import Step
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.progress import Silent
from engine_pipeline.runners.port import StepResult
from engine_registry.digest import Digest

def make(staging):
    (staging.output / "a.bin").write_bytes(b"half")
    print("up", flush=True)
    sys.stdin.read(1)
    return StepResult(wall_s=0, peak_rss_bytes=None)

key = Digest.of(sys.argv[2].encode())
step = Step(name="toy", title="Toy", argv=("x",), outputs=("a.bin",), key=key)
StepCache(Path(sys.argv[1])).obtain(step, make, Silent())
"""


def start_maker(cache, name):
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(cache.root), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
    assert ready
    assert process.stdout.readline() == b"up\n"
    return process


def test_what_a_killed_maker_left_is_invisible_and_swept_by_the_next_build(cache):
    process = start_maker(cache, "killed")
    process.kill()
    process.wait()
    assert len(leftovers(cache)) == 1
    assert cache.find(Digest.of(b"killed")) is None
    cache.obtain(make_step(), good, Silent())
    assert leftovers(cache) == []


def test_what_a_living_maker_is_writing_is_not_swept(cache):
    process = start_maker(cache, "alive")
    cache.obtain(make_step(), good, Silent())
    assert len(leftovers(cache)) == 1
    process.communicate(b"x", timeout=LIMIT_S)
    assert process.returncode == 0
    assert cache.find(Digest.of(b"alive")) is not None
    assert leftovers(cache) == []
