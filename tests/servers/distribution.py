"""A real Distribution server (`docker-registry` of Debian), started by the tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.servers.s3 import free_ports

_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_READY_WITHIN_S = 30.0


@contextmanager
def distribution() -> Iterator[str]:
    """Its host and port; the test is skipped where the program is not installed."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (apt-get install docker-registry)")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yml"
        config.write_text(_CONFIG.format(folder=Path(folder) / "data", port=port))
        log = (Path(folder) / "log").open("wb")
        server = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
        try:
            _wait(server, f"http://127.0.0.1:{port}/v2/", Path(folder) / "log")
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=10)
            log.close()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.05)
    pytest.fail(f"docker-registry did not start: {log.read_text()[-500:]}")
