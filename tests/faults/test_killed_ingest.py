"""`kill -9` in the middle of taking a file in."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.backends.filesystem.root import StoreRoot
from engine_registry.digest import Digest
from engine_registry.registry import open_registry, utc_now
from engine_registry.store import Ownership
from engine_registry.verify import verify

# Stops in the middle of the ingest, with bytes in the temporary file, and says so.
VICTIM = """
import sys
from pathlib import Path
from engine_registry.backends.filesystem import ingest
from engine_registry.registry import open_registry
from engine_registry.store import Ownership

def stop(*arguments):
    print("in the middle", flush=True)
    sys.stdin.read()

real_write = ingest.write_all
def half(fd, data):
    real_write(fd, bytes(data)[: len(data) // 2])
    stop()

ingest.write_all = half
ingest.hash_and_sync = stop
root, source, ownership = sys.argv[1:]
open_registry(root).stores.blobs.add_file(Path(source), Ownership(ownership))
"""


@pytest.mark.parametrize("ownership", list(Ownership))
def test_a_process_killed_in_mid_ingest_leaves_nothing_visible_and_its_leftover_is_swept(
    tmp_path: Path, ownership: Ownership
) -> None:
    root = tmp_path / "registry"
    source = tmp_path / "engine.bin"
    data = os.urandom(2_000_000)
    source.write_bytes(data)
    registry = open_registry(str(root))
    registry.stores.blobs.add_bytes(b"founds it")
    before = list(registry.stores.inventory.files())

    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(root), str(source), ownership],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "in the middle\n"
    store = StoreRoot(root, utc_now)
    assert store.sweep(older_than_s=0) == []  # its writer lives
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.communicate()

    assert list(registry.stores.inventory.files()) == before
    assert verify(registry).mismatches == ()
    assert not (root / layout.blob(Digest.of(data))).exists()
    assert len(store.sweep(older_than_s=0)) == 1
    stored = registry.stores.blobs.add_file(source, ownership)
    assert stored.digest == Digest.of(data)
    assert verify(registry).mismatches == ()


def test_a_process_killed_while_it_holds_a_pointers_lock_holds_nobody_up(tmp_path: Path) -> None:
    root = tmp_path / "registry"
    registry = open_registry(str(root))
    version = registry.stores.pointers.swap("channels/m/t/c/head.json", None, b"1")
    script = (
        "import sys, pathlib\n"
        "from engine_registry.backends.filesystem import documents\n"
        "from engine_registry.registry import open_registry\n"
        "def stop(path):\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
        "documents._read_pointer = stop\n"
        "open_registry(sys.argv[1]).stores.pointers.swap('channels/m/t/c/head.json', None, b'2')\n"
    )
    victim = subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "locked\n"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.communicate()
    registry.stores.pointers.swap("channels/m/t/c/head.json", version, b"3")
