"""A project as a user has it, and the real command line as a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers.command_line import CommandProcess, start_command
from tests.servers.dockerd import CannotStart, DockerDaemon, shared_daemon

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = "smollm2-135m-instruct/cpu-x86-64-v3"
SPECS = "build_specs/smollm2-135m-instruct"
INT8 = f"{SPECS}/cpu-x86-64-v3-int8.yaml"
INT4 = f"{SPECS}/cpu-x86-64-v3-int4.yaml"

# A short suite, so that the story is about the flow; the shipped suite has its own tests.
SUITE = """\
schema_version: 1
name: short
owner: the tests
description: A few prompts that every healthy build answers.
model: smollm2-135m-instruct
reference: {spec: smollm2-135m-instruct/cpu-x86-64-v3-fp16, note: written by hand}
sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 24}
cases: [cases.yaml]
"""
CASES = """\
cases:
  - id: capital-of-france
    tags: [facts]
    must: true
    messages: [{role: user, content: "What is the capital of France? Answer in one sentence."}]
    checks: [{kind: contains, all_of: [Paris]}]
  - id: repeat
    tags: [copying]
    messages: [{role: user, content: "Repeat after me: the cat sat on the mat"}]
    checks: [{kind: contains, all_of: [cat sat on the mat]}]
"""
CHANNELS = """\
schema_version: 1
gates:
  short:
    suite: short
    quality: {min_score: 0.5}
    performance:
      {requests: 20, concurrency: 2, output_tokens: 4, prompt_words: 8, warmup_requests: 1,
       max_ttft_p95_ms: 600000, min_output_tokens_per_s: 0.1}
policies:
  - products: ["smollm2-135m-instruct/*"]
    channels:
      staging: {gates: [short]}
      prod: {gates: [short], upstream: staging}
"""


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@dataclass
class Project:
    """A directory with specs, suite and policies; registry and cache below it."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *args: str, **environment: str) -> CommandProcess:
        """The command line as a process of its own."""
        return start_command(args, self.root, {**self.env, **environment})

    def run(self, *args: str, **environment: str) -> Ran:
        process = self.start(*args, "--output", "json", **environment)
        out, err = process.communicate(timeout=300)
        return Ran(process.returncode, out, err)

    def ok(self, *args: str) -> dict:
        ran = self.run(*args)
        assert ran.code == 0, f"{args}: {ran.err}"
        return ran.json

    def kill_at_phase(self, phase: str, *args: str) -> tuple[bool, list[str]]:
        """Run until `phase` begins, then SIGKILL: was it killed, and what it had said."""
        process = self.start(*args)
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line.strip())
            if re.match(rf"{phase}(: (?!reused)|$)", lines[-1]):
                process.send_signal(signal.SIGKILL)
                break
        process.stderr.close()
        process.stdout.close()
        code = process.wait(timeout=120)
        return code == -signal.SIGKILL, lines

    @property
    def registry_dir(self) -> Path:
        return self.root / "engines"


def new_project(root: Path) -> Project:
    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / SPECS, root / SPECS)
    (root / "golden_prompts" / "short").mkdir(parents=True)
    (root / "golden_prompts" / "short" / "suite.yaml").write_text(SUITE)
    (root / "golden_prompts" / "short" / "cases.yaml").write_text(CASES)
    for spec in (root / SPECS).glob("*.yaml"):
        spec.write_text(spec.read_text().replace("smollm2-core", "short"))
    for lock in (root / SPECS).glob("*.lock.json"):
        lock.write_text(lock.read_text().replace("smollm2-core", "short"))
    (root / "channels.yaml").write_text(CHANNELS)
    foreign = ("ENGINECTL_", "GITHUB_", "HF_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    env |= {
        "ENGINECTL_REGISTRY": f"file://{root}/engines",
        "ENGINECTL_CACHE": str(root / "cache"),
        "ENGINECTL_ACTOR": "the story",
        "HF_HUB_OFFLINE": "1",
    }
    return Project(root, env)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return new_project(tmp_path / "project")


@dataclass
class Built:
    """A project in which INT8 and INT4 are built and judged."""

    project: Project
    int8: str
    int4: str


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Built:
    project = new_project(tmp_path_factory.mktemp("built") / "project")
    int8 = project.ok("build", INT8)["engine"]
    int4 = project.ok("build", INT4)["engine"]
    for engine in (int8, int4):
        project.ok("gate", engine)
    return Built(project, int8, int4)


@pytest.fixture
def built(built_once: Built, tmp_path: Path) -> Built:
    """A copy of the built project's registry that a test may move channels in.

    Files are linked: a registry never writes to one it has, and neither may a test.
    """
    project = new_project(tmp_path / "project")
    shutil.copytree(built_once.project.registry_dir, project.registry_dir, copy_function=os.link)
    return Built(project, built_once.int8, built_once.int4)


def served_processes(root: Path) -> list[str]:
    """Command lines of living processes that mention `root`: servers and steps left behind."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                raw = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            words = raw.replace(b"\0", b" ").decode(errors="replace")
            if str(root) in words and "pytest" not in words:
                found.append(words)
    return found


@pytest.fixture(scope="session")
def docker_daemon() -> DockerDaemon:
    try:
        return shared_daemon()
    except CannotStart as error:
        pytest.skip(f"no Docker Engine: {error}")
