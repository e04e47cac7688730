"""Runs plans against the stand-in: a test double of the toolkit, never the toolkit itself."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_pipeline.build.outputs import check_outputs
from engine_pipeline.build.plan import Step, fill
from tests.standin.install import Installed, install


class StepFailed(Exception):
    """A step's process ended badly."""

    def __init__(self, step: str, status: int, text: str) -> None:
        super().__init__(f"{step}: {status}: {text}")
        self.step, self.status, self.text = step, status, text
        self.lines = text.splitlines()


@dataclass
class Bench:
    """One directory in which steps run, as a runner would run them."""

    root: Path
    installed: Installed
    lock_path: Path

    def run(self, steps: tuple[Step, ...], **given: Path) -> Path:
        """Run all steps but those whose output is given; the last one's output."""
        outputs: dict[str, Path] = dict(given)
        for step in steps:
            if step.name not in outputs:
                outputs[step.name] = self.step(step, outputs)
        return outputs[steps[-1].name]

    def step(self, step: Step, inputs: dict[str, Path]) -> Path:
        output = self.root / "outputs" / step.name
        output.mkdir(parents=True, exist_ok=True)
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        values = {"python": sys.executable, "lock": str(self.lock_path), "output": str(output)}
        values |= {f"input:{name}": str(inputs[name]) for name in step.inputs}
        status, text = (
            self._own(step, values)
            if step.argv[1:2] == ("-m",)
            else self._toolkit(step, values, scratch)
        )
        if status:
            raise StepFailed(step.name, status, text)
        check_outputs(step, output)
        return output

    def _own(self, step: Step, values: dict[str, str]) -> tuple[int, str]:
        """A step of ours, in this process: its entry point, without another interpreter's start."""
        text = io.StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            status = importlib.import_module(step.argv[2]).main(fill(step.argv[3:], values))
        return status, text.getvalue()

    def _toolkit(self, step: Step, values: dict[str, str], scratch: Path) -> tuple[int, str]:
        """A step of the toolkit: the stand-in on the PATH, as a process."""
        done = subprocess.run(
            fill(step.argv, values),
            cwd=scratch,
            env={"PATH": f"{self.installed.bin_dir}:{os.environ['PATH']}", **step.variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def bench(tmp_path):
    """A stand-in of 1.2.1 on one machine; `bench.installed.set` changes how it behaves."""

    def make(version="1.2.1", **settings):
        return Bench(
            root=tmp_path,
            installed=install(tmp_path / "standin", version, **settings),
            lock_path=tmp_path / "toy.lock.json",
        )

    return make
