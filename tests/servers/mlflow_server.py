"""A real MLflow server on a free loopback port, on SQLite or PostgreSQL, that can be killed.

MLflow is big and lives in an environment of its own: `ENGINECTL_TEST_MLFLOW` names its `mlflow`
program, else `make bench-peers` has made one in `.venv-peers`. PostgreSQL also wants `initdb` and
`postgres` on PATH or where Debian puts them, and `psycopg` beside MLflow.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The first start makes the tables: 19 s were measured on two idle cores.
READY_WITHIN_S = 180.0


class CannotStart(Exception):
    """What is needed is not here; the text says what."""


def mlflow_program() -> Path:
    """The `mlflow` program; raises CannotStart."""
    named = os.environ.get("ENGINECTL_TEST_MLFLOW")
    path = Path(named) if named else ROOT / ".venv-peers" / "bin" / "mlflow"
    if not path.is_file():
        why = f"no MLflow at {path}; run `make bench-peers` or set ENGINECTL_TEST_MLFLOW"
        raise CannotStart(why)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class MlflowProcess:
    """The server; its port stays the same over restarts."""

    folder: Path
    backend: str
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it; how many seconds it took until it answered."""
        began = time.monotonic()
        with (self.folder / "mlflow.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(mlflow_program()),
                    "server",
                    *("--backend-store-uri", self.backend),
                    *("--artifacts-destination", str(self.folder / "artifacts")),
                    *("--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while time.monotonic() - began < READY_WITHIN_S:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return time.monotonic() - began
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.kill()
        raise CannotStart((self.folder / "mlflow.log").read_text()[-2000:])

    def kill(self) -> None:
        """End the server and its workers at once, with nothing saved."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One call as any client makes it."""
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = answer.read()
        return json.loads(data) if path.startswith("mlflow/") else data


@dataclass
class Postgres:
    """A PostgreSQL server in a folder, reached through a socket there."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg://mlflow@/postgres?host={self.folder}"

    def start(self) -> None:
        """Make a cluster and start it; raises CannotStart."""
        programs = [self._program(name) for name in ("initdb", "postgres")]
        mlflow_python = mlflow_program().parent / "python"
        asked = [mlflow_python, "-c", "import psycopg"]
        seen = subprocess.run(asked, capture_output=True, check=False)
        if seen.returncode:
            raise CannotStart(f"no psycopg beside MLflow ({mlflow_python})")
        # PostgreSQL refuses to run as root.
        user = "nobody" if os.getuid() == 0 else None
        if user:
            shutil.chown(self.folder, user)
        data = self.folder / "data"
        made = subprocess.run(
            [programs[0], "-D", data, "-U", "mlflow", "--auth", "trust", "--no-sync"],
            capture_output=True,
            check=False,
            user=user,
            cwd=self.folder,
        )
        if made.returncode:
            raise CannotStart(f"initdb: {made.stderr.decode()[-500:]}")
        self.process = subprocess.Popen(
            [programs[1], "-D", data, "-k", self.folder, "-c", "listen_addresses="],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            cwd=self.folder,
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    @staticmethod
    def _program(name: str) -> str:
        places = [*os.environ.get("PATH", "").split(os.pathsep)]
        places += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
        found = shutil.which(name, path=os.pathsep.join(reversed(places)))
        if found is None:
            raise CannotStart(f"no {name}; Debian's package postgresql has it")
        return found
