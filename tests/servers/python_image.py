"""A container image made of this machine's own Python: interpreter, standard library, `env`, `sh`.

Enough to run any script without third-party packages, and made in about a second. Everything lies
where it lies on this machine, so the interpreter finds its library by itself. On top of it an image
may have files of its own, such as a stand-in for a toolkit.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Tests and graphical parts are half of the standard library and are never run in there.
_LEFT_OUT = {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"} | {
    "tkinter",
    "turtledemo",
}
_LINKED = re.compile(r"(?:=> )?(/\S+) \(0x")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Image:
    """An OCI image: its manifest and every blob that the manifest reaches."""

    manifest: bytes
    blobs: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def python_image(
    files: Mapping[str, str | bytes] | None = None, *, env: Mapping[str, str] | None = None
) -> Image:
    """This machine's Python and, above it, `files`: absolute path → content, all executable."""
    return image([python_layer(), layer(files or {})], env=env)


def image(layers: list[bytes], *, env: Mapping[str, str] | None = None) -> Image:
    """An image of these uncompressed layers."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin"} | dict(env or {})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Env": [f"{name}={value}" for name, value in variables.items()]},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
            "history": [{"created_by": "tests"} for _ in layers],
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [_descriptor(layer, _LAYER_TYPE) for layer in layers],
    }
    return Image(
        manifest=json.dumps(manifest).encode(),
        blobs={digest_of(blob): blob for blob in (config, *layers)},
    )


def _descriptor(blob: bytes, media_type: str) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def layer(files: Mapping[str, str | bytes]) -> bytes:
    """A layer with these files, all executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in sorted(files.items()):
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@cache
def python_layer() -> bytes:
    """The interpreter's layer; the same bytes each time on one machine."""
    interpreter = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    programs = [Path(found).resolve() for name in ("env", "sh") if (found := shutil.which(name))]
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and name[:7] != "config-"]
        found |= {f"{folder}/{name}": Path(folder, name) for name in names if "tkinter" not in name}
    compiled = [path for name, path in found.items() if name.endswith(".so")]
    for path in (interpreter, *programs):
        found[str(path)] = path
    for name in _linked([interpreter, *programs, *compiled]):
        found[name] = Path(name)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in sorted(found.items()):
            _add(tar, name, path)
        for name, target in (
            ("usr/bin/python3", str(interpreter)),
            ("usr/bin/env", str(programs[0])),
            ("bin/sh", str(programs[-1])),
        ):
            if f"/{name}" != target:
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    data = path.read_bytes()
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(data), 0o755 if os.access(path, os.X_OK) else 0o644
    tar.addfile(entry, io.BytesIO(data))


def _linked(binaries: list[Path]) -> set[str]:
    """Every shared object that the loader would open for these, by the name it would open."""
    said = subprocess.run(
        ["ldd", *map(str, binaries)], capture_output=True, text=True, check=False
    ).stdout
    return set(_LINKED.findall(said))
