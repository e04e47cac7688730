"""The local runner: steps as processes, and each way they can end."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field

import pytest

from engine_pipeline.build.plan import Step
from engine_pipeline.progress import Silent
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.runners.port import Runner, StepPaths
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput, Unavailable

LIMIT_S = 30


@dataclass
class Heard:
    """Progress that remembers."""

    said: list[tuple[object, ...]] = field(default_factory=list)

    def phase(self, name, detail=""):
        self.said.append(("phase", name, detail))

    def update(self, done, total, unit):
        self.said.append(("update", done, total, unit))

    def note(self, text):
        self.said.append(("note", text))


def step(program: str, *more: str, **changes) -> Step:
    """A step that runs a Python program."""
    return Step(
        **{
            "name": "toy",
            "title": "Toy",
            "argv": ("{python}", "-c", textwrap.dedent(program), *more),
            "outputs": ("out",),
            "ram_bytes": 1 << 30,
            "disk_bytes": 1 << 30,
            "key": Digest.of(b"toy"),
        }
        | changes
    )


@pytest.fixture
def paths(tmp_path):
    for name in ("output", "scratch", "input"):
        (tmp_path / name).mkdir()
    (tmp_path / "lock.json").write_text("{}")
    return StepPaths(
        lock=tmp_path / "lock.json",
        output=tmp_path / "output",
        scratch=tmp_path / "scratch",
        log=tmp_path / "log.txt",
        inputs={"before": tmp_path / "input"},
    )


def run(program, paths, *more, runner=None, progress=None, **changes):
    chosen: Runner = runner or LocalRunner()
    return chosen.run(step(program, *more, **changes), paths, progress or Silent())


def failure(program, paths, **changes) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        run(program, paths, **changes)
    return caught.value


def test_placeholders_become_paths_and_the_result_has_time_and_memory(paths):
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(' '.join(sys.argv[2:]))"
    result = run(program, paths, "{output}/out", "{lock}", "{input:before}")
    assert (paths.output / "out").read_text() == f"{paths.lock} {paths.inputs['before']}"
    assert result.wall_s > 0
    assert result.peak_rss_bytes > 1_000_000


def test_progress_lines_are_passed_on_and_the_rest_is_logged(paths):
    heard = Heard()
    program = """
        import sys
        print("::phase work on it")
        print("::progress 5 10 bytes")
        print("plain text")
        print("::note worth keeping")
        print("trouble", file=sys.stderr)
    """
    run(program, paths, progress=heard)
    assert heard.said == [
        ("phase", "work", "on it"),
        ("update", 5.0, 10.0, "bytes"),
        ("note", "worth keeping"),
    ]
    assert sorted(paths.log.read_text().split("\n")) == ["", "plain text", "trouble"]


def test_an_error_that_a_step_states_is_raised_as_its_own_class(paths):
    program = """
        import sys
        from engine_pipeline.runners.protocol import run_child
        from engine_registry.errors import InvalidInput
        def act(progress):
            raise InvalidInput("toy is wrong", hint="mend it", reference="toy-wrong")
        sys.exit(run_child(act))
    """
    error = failure(program, paths)
    assert isinstance(error, InvalidInput)
    assert (error.message, error.hint, error.name) == ("toy is wrong", "mend it", "toy-wrong")


def test_a_step_that_fails_silently_shows_its_code_its_last_line_and_its_log(paths):
    program = "import sys; print('before\\nthe reason', file=sys.stderr); sys.exit(3)"
    error = failure(program, paths)
    assert error.name == "step-failed"
    assert "exit code 3: the reason" in error.message
    # For whoever knows the tool and can say more.
    assert error.tail == ("before", "the reason")
    assert str(paths.log) in error.hint


def test_sigkill_is_told_as_out_of_host_memory_with_peak_and_expectation(paths):
    program = """
        import os
        b = bytearray(200 << 20)
        b[::4096] = b"x" * len(b[::4096])
        os.kill(os.getpid(), 9)
    """
    error = failure(program, paths)
    assert isinstance(error, Unavailable)
    assert error.name == "out-of-host-memory"
    assert "peak 0.2" in error.message
    assert "expected 1.00 GiB" in error.message


def test_exhausted_memory_that_python_notices_is_told_the_same_way(paths):
    program = """
        import sys
        from engine_pipeline.runners.protocol import run_child
        def act(progress):
            raise MemoryError
        sys.exit(run_child(act))
    """
    assert failure(program, paths).name == "out-of-host-memory"


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit('tool: write error: No space left on device')",
        """
        import sys
        from engine_pipeline.runners.protocol import run_child
        def act(progress):
            raise OSError(28, "No space left on device")
        sys.exit(run_child(act))
        """,
    ],
)
def test_a_full_disk_is_told_with_need_and_what_is_free(paths, program):
    error = failure(program, paths)
    assert isinstance(error, Unavailable)
    assert error.name == "disk-full"
    assert "needs about 1.00 GiB" in error.message
    assert "free" in error.message


def test_a_silent_step_is_stopped_as_stalled(paths):
    error = failure("import time; time.sleep(1000)", paths, runner=LocalRunner(stall_timeout_s=0.6))
    assert error.name == "step-stalled"


def test_an_endless_step_is_stopped_although_it_speaks(paths):
    program = "import time\nwhile True: print('::note on it', flush=True); time.sleep(0.05)"
    error = failure(program, paths, runner=LocalRunner(timeout_s=0.6))
    assert error.name == "step-timed-out"


def test_a_step_that_wants_an_image_is_refused(paths):
    with pytest.raises(Incompatible, match="img@sha256"):
        run("", paths, image="img@sha256:0")


def test_only_named_variables_of_the_environment_are_seen(paths, monkeypatch):
    monkeypatch.setenv("TOY_SETTING", "seen")
    monkeypatch.setenv("OTHER_SETTING", "not seen")
    program = "import os; print(os.environ.get('TOY_SETTING'), os.environ.get('OTHER_SETTING'))"
    run(program, paths, env=("TOY_SETTING",))
    assert paths.log.read_text() == "seen None\n"


def test_settings_of_the_plan_and_the_leased_gpus_are_in_the_environment(paths, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    program = "import os; print(os.environ['TOY'], os.environ['CUDA_VISIBLE_DEVICES'])"
    leased = dataclasses.replace(paths, gpus=("GPU-1", "GPU-2"))
    run(program, leased, env=("CUDA_VISIBLE_DEVICES",), variables={"TOY": "set"}, gpus=2)
    assert paths.log.read_text() == "set GPU-1,GPU-2\n"


def test_a_step_that_tells_no_progress_has_its_time_told_instead(paths):
    heard = Heard()
    program = "import time\nfor _ in range(16): print('text', flush=True); time.sleep(0.1)"
    run(program, paths, runner=LocalRunner(beat_s=0.3), progress=heard)
    assert ("update", 1, None, "seconds") in heard.said


def test_a_step_that_tells_its_own_progress_is_not_talked_over(paths):
    heard = Heard()
    program = """
        import time
        for done in range(18):
            print("::progress", done, 18, "cases", flush=True)
            time.sleep(0.1)
    """
    run(program, paths, runner=LocalRunner(beat_s=1), progress=heard)
    assert {said[3] for said in heard.said} == {"cases"}


def test_the_value_of_a_secret_reaches_neither_log_nor_error(paths, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretvalue")
    program = "import os, sys; print(os.environ['HF_TOKEN']); sys.exit(os.environ['HF_TOKEN'])"
    error = failure(program, paths, env=("HF_TOKEN",))
    assert "verysecret" not in error.message + error.hint + paths.log.read_text()
    assert "[secret]" in error.message


def test_a_secret_in_a_stated_error_is_hidden(paths, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretvalue")
    program = """
        import os, sys
        from engine_pipeline.runners.protocol import run_child
        from engine_registry.errors import Unavailable
        def act(progress):
            progress.note("with " + os.environ["HF_TOKEN"])
            raise Unavailable("no: " + os.environ["HF_TOKEN"], hint="use " + os.environ["HF_TOKEN"])
        sys.exit(run_child(act))
    """
    heard = Heard()
    with pytest.raises(Unavailable) as caught:
        run(program, paths, progress=heard, env=("HF_TOKEN",))
    assert "verysecret" not in caught.value.message + caught.value.hint + str(heard.said)


def test_a_file_in_the_working_directory_shadows_no_module(paths):
    (paths.scratch / "json.py").write_text("raise SystemExit('shadowed')")
    run("import json", paths)


def test_temporary_files_go_to_the_scratch_directory(paths):
    run("import tempfile; print(tempfile.gettempdir())", paths)
    assert paths.log.read_text() == f"{paths.scratch}\n"


def test_a_log_stops_growing_and_the_last_lines_are_still_known(paths):
    program = """
        import sys
        line = "x" * 1023
        for _ in range(18 << 10):
            print(line)
        sys.exit("the end")
    """
    error = failure(program, paths)
    assert "the end" in error.message
    assert paths.log.stat().st_size < (16 << 20) + 2048
    assert "log cut here" in paths.log.read_text()[-100:]


INTERRUPTED = """
import os, sys
from pathlib import Path
from engine_pipeline.build.plan import Step
from engine_pipeline.progress import Silent
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.runners.port import StepPaths
from engine_registry.digest import Digest

root = Path(sys.argv[1])
(root / "output").mkdir()
(root / "scratch").mkdir()
paths = StepPaths(lock=root, output=root / "output", scratch=root / "scratch", log=root / "log")
wait = "import time; alive = open(r'%s', 'w'); time.sleep(1000)" % sys.argv[2]
step = Step(
    name="toy", title="Toy", argv=("{python}", "-c", wait), outputs=("out",), key=Digest.of(b"")
)
try:
    LocalRunner().run(step, paths, Silent())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, b"interrupted\n"), (signal.SIGKILL, b"")]
)
def test_an_interrupted_or_killed_runner_leaves_no_process_behind(tmp_path, number, said):
    # The step opens this pipe by name: once it is open for writing the step is running, and its
    # end gives end-of-file here.
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    work = tmp_path / "work"
    work.mkdir()
    runner = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(work), str(fifo)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with fifo.open("rb") as alive:
        runner.send_signal(number)
        assert runner.stdout.read() == said
        runner.wait(LIMIT_S)
        ready, _, _ = select.select([alive], [], [], LIMIT_S)
        assert ready
        assert alive.read() == b""
