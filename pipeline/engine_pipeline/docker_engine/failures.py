"""What the Docker Engine means when it refuses. Pure.

It answers most refusals with status 500 and a sentence, and what is behind it (the registry, runc,
the NVIDIA container runtime) only shows in that sentence. Signs are in the order of decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine_pipeline.redact import redact
from engine_registry.errors import (
    EngineCIError,
    Incompatible,
    InvalidInput,
    NotFound,
    RefusedByPolicy,
    Unavailable,
)

_SAID_LENGTH = 300
_NO_RLIMIT = "error setting rlimit"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """What to look for in the sentence, and what it means."""

    pattern: str
    kind: type[EngineCIError]
    reference: str
    says: str
    hint: str


# Wording from Docker Engine 20.10 to 28, runc 1.1, nvidia-container-toolkit 1.14 to 1.17.
_SIGNS = (
    _Sign(
        pattern=r"could not select device driver|no known GPU vendor|driver not loaded"
        r"|nvidia-container-cli: initialization error|libnvidia-ml\.so",
        kind=Incompatible,
        reference="docker-without-gpus",
        says="Docker cannot give GPUs to containers here: no NVIDIA driver or container toolkit",
        hint="install the driver and nvidia-container-toolkit, run `nvidia-ctk runtime configure "
        "--runtime=docker` and restart Docker; `nvidia-smi` must work first",
    ),
    _Sign(
        pattern=r"nvidia-container-cli: device error|unknown device|unresolvable CDI device",
        kind=Incompatible,
        reference="gpu-missing",
        says="a leased GPU is not there for containers",
        hint="compare `nvidia-smi -L` with `docker info`; a board that was reset or lost needs a "
        "restart of Docker",
    ),
    _Sign(
        pattern=r"no matching manifest for|exec format error",
        kind=Incompatible,
        reference="image-other-platform",
        says="the image is for another processor architecture",
        hint="pin the image's digest for this architecture",
    ),
    _Sign(
        pattern=r"no space left on device|disk quota exceeded",
        kind=Unavailable,
        reference="docker-disk-full",
        says="Docker's own disk is full",
        hint="free space below its data root (`docker info` names it, `docker system df` and "
        "`docker image prune` help), then run the same command again",
    ),
    _Sign(
        pattern=r"manifest unknown|manifest for \S+ not found|no such image|name unknown"
        r"|repository \S+ not found",
        kind=NotFound,
        reference="image-not-found",
        says="the registry has no such image",
        hint="check name and digest with `docker buildx imagetools inspect`, or lock the spec anew",
    ),
    _Sign(
        pattern=r"no basic auth credentials|unauthorized|authentication required|access denied"
        r"|\bdenied\b|\bforbidden\b",
        kind=RefusedByPolicy,
        reference="image-pull-denied",
        says="the registry does not let this user pull the image",
        hint="run `docker login` for that registry as this user, then the same command again",
    ),
    _Sign(
        pattern=r"bind source path does not exist|path is not shared",
        kind=Incompatible,
        reference="docker-sees-other-files",
        says="the Docker daemon does not see this machine's files",
        hint="use a daemon on this machine, and a --cache-dir that it has at the same path",
    ),
    _Sign(
        pattern=r"port is already allocated|address already in use",
        kind=Unavailable,
        reference="port-taken",
        says="the port is taken",
        hint="run the same command again: another port is chosen",
    ),
    _Sign(
        pattern=r"executable file not found|exec: .*(no such file|permission denied)"
        r"|no such file or directory: unknown",
        kind=Incompatible,
        reference="command-not-in-image",
        says="the image does not have the command",
        hint="check backend.image and backend.version of the spec: they must be of one release",
    ),
    _Sign(
        pattern=r"invalid reference format",
        kind=InvalidInput,
        reference="image-reference-invalid",
        says="not an image reference",
        hint="write registry/name:tag or registry/name@sha256:…",
    ),
    _Sign(
        pattern=r"connection refused|no such host|timeout|deadline exceeded|unreachable|EOF"
        r"|connection reset|TLS|x509|server misbehaving|toomanyrequests|too many requests",
        kind=Unavailable,
        reference="image-registry-unreachable",
        says="the image's registry does not answer as it should",
        hint="check network, proxy and certificates of the Docker daemon, then run it again",
    ),
)


def explain(what: str, said: str) -> EngineCIError:
    """The error behind a refusal.

    Args:
        what: the thing that was wanted, e.g. `step compile` or `image name@sha256:…`.
        said: the daemon's sentence.
    """
    sentence = redact(" ".join(said.split()))[:_SAID_LENGTH]
    for sign in _SIGNS:
        if re.search(sign.pattern, said, re.IGNORECASE):
            return sign.kind(
                f"{what}: {sign.says}: {sentence}", hint=sign.hint, reference=sign.reference
            )
    return Unavailable(
        f"{what}: Docker refuses: {sentence}",
        hint="read the daemon's log (`journalctl -u docker`), then run the same command again",
        reference="docker-refused",
    )


def forbids_limits(said: str) -> bool:
    """Whether the daemon may not raise resource limits, as a rootless one may not."""
    return _NO_RLIMIT in said
