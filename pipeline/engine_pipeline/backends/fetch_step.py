"""The step that fetches one part of a lock, the first of every plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.build.plan import Step, step_key

if TYPE_CHECKING:
    from engine_pipeline.spec.lock import BuildLock, LockedSource

FETCH, CALIBRATION = "fetch", "calibration"
# What huggingface_hub and its HTTP client read; values never enter a plan.
_NETWORK_ENV = (
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_DISABLE_XET",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "HF_HUB_ETAG_TIMEOUT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_XET_CACHE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "XDG_CACHE_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
# Interpreter, hub client and the piece that is hashed.
_RAM_BYTES = 512 << 20


def fetch_steps(lock: BuildLock) -> tuple[Step, ...]:
    """The model and, where the lock has any, the calibration data: the only steps with network."""
    model = _fetch(lock, "source", lock.source, FETCH)
    if lock.calibration is None:
        return (model,)
    return model, _fetch(lock, "calibration", lock.calibration, CALIBRATION)


def _fetch(lock: BuildLock, part: str, source: LockedSource, name: str) -> Step:
    argv = (
        "{python}",
        "-m",
        "engine_pipeline.sources.fetch",
        "--lock",
        "{lock}",
        "--part",
        part,
        "--output",
        "{output}",
    )
    files = [item.model_dump(mode="json") for item in source.files]
    return Step(
        name=name,
        title=f"Fetch {source.source} at {source.revision[:12]}",
        argv=argv,
        env=_NETWORK_ENV,
        outputs=tuple(item.path for item in source.files),
        network=True,
        disk_bytes=source.size_bytes,
        ram_bytes=_RAM_BYTES,
        key=step_key(argv, {"files": files, "allow_code": lock.spec.model.allow_code}, ()),
    )
