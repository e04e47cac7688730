"""Taking a 4 GB engine into a registry costs little more than hashing it.

The whole act, `Engines.put_engine` on a registry that exists: files, manifest, provenance, lock,
record and key link, all durable on return. Once as one file, once as eight. GIVEN: the files are a
build's own output and may be hard-linked; KEPT: the caller keeps using them, so the registry takes
its own copy.

Peers, in the same run, with as many files at a time as the registry takes (one per core):

    hashing alone    the faster of hashlib (1 MiB `readinto`) and `openssl dgst -sha256`: no store
                     that names bytes by their SHA-256 can be faster than this
    openssl + cp     `openssl dgst -sha256`, then `cp`; with `sync` of the copy, which the registry
                     does too, and without
    dvc add          DVC's own command, on a new repository with an empty state; by copy, its
                     default, and by hard link; it hashes with MD5 and syncs nothing
    mlflow log_artifact
                     into a run of a store in SQLite, artifacts beside it, in a process that has
                     stored a small one already; it hashes nothing and syncs nothing, so that
                     what it holds can be lost or damaged unseen; with `sync`, and without

Source files are in the page cache, and on disk unless the row says otherwise, before each run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import measure
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.engines import BuildFacts, EngineDraft, EngineFile
from engine_registry.record import Actor, Platform
from engine_registry.registry import open_registry
from engine_registry.store import Ownership
from engine_registry.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CORES = len(os.sched_getaffinity(0))
HASHLIB, OPENSSL = "hashlib", "openssl dgst"
COPY_SYNCED = "openssl dgst + cp + sync"
MLFLOW, MLFLOW_SYNCED = "mlflow log_artifact", "mlflow log_artifact + sync"
DVC_COPY, DVC_LINK = "dvc add, copy", "dvc add, hard link"


def main() -> None:
    options = measure.arguments(__doc__, gb=(4.0, "size of the engine"), repeats=(5, "rounds"))
    size_gb, repeats = (0.25, 2) if options.quick else (options.gb, options.repeats)
    with measure.bench(__doc__, options.dir) as scratch:
        for count in (1, 8):
            _compare(scratch, count, size_gb, repeats)


def _compare(scratch: Path, count: int, size_gb: float, repeats: int) -> None:
    sources = _write_sources(scratch / "build", count, size_gb)
    work = scratch / "work"
    fresh = [work / "build" / path.name for path in sources]

    def found() -> None:
        samples.sample_engine(open_registry(_registry(work)))

    def case(name: str, run: Callable[[], object], *prepare: Callable[[], object]) -> measure.Case:
        def before() -> None:
            work.mkdir()
            os.sync()  # what earlier runs left to be written is not this one's to wait for
            for step in prepare:
                step()

        return measure.Case(name=name, run=run, before=before, after=lambda: measure.remove(work))

    cases = [
        case(HASHLIB, lambda: _each(_hash, sources)),
        case(OPENSSL, lambda: _each(_openssl, sources)),
        case("registry, GIVEN", lambda: _put(work, sources, Ownership.GIVEN), found),
        case(
            "registry, GIVEN, not yet on disk",
            lambda: _put(work, fresh, Ownership.GIVEN),
            found,
            lambda: _write_sources(work / "build", count, size_gb, sync=False),
        ),
        case("registry, KEPT", lambda: _put(work, sources, Ownership.KEPT), found),
        case("openssl dgst + cp", lambda: _each(lambda p: _copy(p, work, sync=False), sources)),
        case(COPY_SYNCED, lambda: _each(lambda p: _copy(p, work, sync=True), sources)),
    ]
    if dvc := measure.peer("dvc"):
        names = [path.name for path in sources]
        for name, link in ((DVC_COPY, "copy"), (DVC_LINK, "hardlink")):
            add = partial(_dvc, dvc, work, "add", "--quiet", *names)
            cases.append(case(name, add, partial(_dvc_repository, dvc, work, sources, link)))
    if mlflow := measure.peer("mlflow"):
        peer = _Mlflow(mlflow.parent / "python", work / "mlflow")
        for name, sync in ((MLFLOW, False), (MLFLOW_SYNCED, True)):
            cases.append(case(name, partial(peer.log, sources, sync=sync), peer.start))
    taken = measure.interleaved(cases, repeats)
    fastest = min((HASHLIB, OPENSSL), key=lambda name: statistics.median(taken[name]))
    table = measure.Table(
        title=f"{size_gb:g} GB in {count} {'file' if count == 1 else 'files'}, "
        f"{min(count, CORES)} at a time",
        peers={
            f"hashing alone ({fastest})": fastest,
            "openssl + cp": COPY_SYNCED,
            "dvc": DVC_COPY,
            "mlflow + sync": MLFLOW_SYNCED,
        },
        amount_gb=size_gb,
    )
    table.add(taken)
    table.print()
    measure.remove(scratch / "build")


def _write_sources(folder: Path, count: int, size_gb: float, *, sync: bool = True) -> list[Path]:
    folder.mkdir()
    piece = os.urandom(1 << 24)
    paths = [folder / f"model-{number}.gguf" for number in range(count)]
    for number, path in enumerate(paths):
        left = int(size_gb * 1e9) // count
        with path.open("wb", buffering=0) as stream:
            stream.write(number.to_bytes(8))  # no two files are equal
            left -= 8
            while left > 0:
                left -= stream.write(piece[: min(left, len(piece))])
    if sync:
        os.sync()
    return paths


def _each(act: Callable[[Path], object], paths: list[Path]) -> None:
    with ThreadPoolExecutor(min(CORES, len(paths))) as pool:
        list(pool.map(act, paths))


def _hash(path: Path) -> str:
    state = hashlib.sha256()
    buffer = memoryview(bytearray(READ_SIZE_BYTES))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()


def _openssl(path: Path) -> None:
    subprocess.run(["openssl", "dgst", "-sha256", path], check=True, stdout=subprocess.DEVNULL)


def _copy(path: Path, folder: Path, *, sync: bool) -> None:
    _openssl(path)
    subprocess.run(["cp", path, folder], check=True)
    if sync:
        subprocess.run(["sync", folder / path.name], check=True)


def _put(work: Path, sources: list[Path], ownership: Ownership) -> None:
    draft = EngineDraft(
        files={path.name: EngineFile(path=path) for path in sources},
        ownership=ownership,
        descriptor={"name": "bench"},
        config={"precision": "int8"},
        facts=BuildFacts(
            build_key=Digest.of(b"bench"),
            spec="bench",
            model="bench",
            target="cpu",
            kind="llama-cpp",
            precision="int8",
            platform=Platform(sku="cpu"),
            built_by=Actor(name="bench", proved_by="claimed"),
            built_at=datetime.now(UTC),
        ),
        provenance=lambda engine: str(engine).encode(),
        lock=b"{}",
    )
    open_registry(_registry(work)).engines.put_engine(draft)


def _registry(work: Path) -> str:
    return f"file://{work / 'registry'}"


def _dvc_repository(dvc: Path, work: Path, sources: list[Path], link: str) -> None:
    _dvc(dvc, work, "init", "--quiet", "--no-scm")
    _dvc(dvc, work, "config", "core.check_update", "false")
    _dvc(dvc, work, "config", "cache.type", link)
    for path in sources:
        # A name of its own for the same bytes: DVC moves it into its cache.
        os.link(path, work / path.name)


def _dvc(dvc: Path, work: Path, *arguments: str) -> None:
    # DVC remembers digests by inode outside the repository; here each run starts without memory.
    measure.command(dvc, *arguments, cwd=work, env={"DVC_SITE_CACHE_DIR": str(work / "site")})


_MLFLOW_SERVES = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from mlflow import MlflowClient
folder, cores = sys.argv[1], int(sys.argv[2])
client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
experiment = client.create_experiment("bench", artifact_location=f"file://{folder}/artifacts")
run = client.create_run(experiment).info.run_id
client.log_artifact(run, f"{folder}/log")  # the first one imports what storing takes
print("ready", flush=True)
paths = json.loads(sys.stdin.readline())
with ThreadPoolExecutor(cores) as pool:
    list(pool.map(lambda path: client.log_artifact(run, path), paths))
print("done", flush=True)
"""


class _Mlflow:
    """MLflow in a process of the peers' Python, with a new store for each time."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self._folder = folder
        self._log = folder / "log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._folder.mkdir()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._python, "-c", _MLFLOW_SERVES, str(self._folder), str(CORES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **measure.PEER_ENV},
            )
        self._hears("ready")

    def log(self, sources: list[Path], *, sync: bool) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(path) for path in sources]) + "\n")
        self._process.stdin.flush()
        self._hears("done")
        if sync:
            stored = [path for path in (self._folder / "artifacts").rglob("*") if path.is_file()]
            subprocess.run(["sync", *stored], check=True)
        self._process.kill()  # how it says goodbye is not timed
        self._process.wait()

    def _hears(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != word:
            sys.exit(f"mlflow log_artifact: want {word!r}, got {said!r}\n{self._log.read_text()}")


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("no openssl program: its rows need it; `apt-get install openssl`")
    else:
        main()
