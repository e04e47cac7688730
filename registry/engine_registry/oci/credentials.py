"""Credentials as `docker login` left them, never from an address and never shown.

Source: the `config.json` of the Docker CLI (`auths`, `credHelpers`, `credsStore`) and the protocol
of docker-credential-helpers (`get`: the server on standard input, JSON on standard output).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_registry.errors import Unavailable

_HELPER_TIMEOUT_S = 30.0
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Under which name the Docker CLI keeps the login of Docker Hub.
_HUB = {"docker.io": "https://index.docker.io/v1/"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login; printing it shows nothing.

    Attributes:
        identity_token: set if the login is a refresh token; there is no user then.
    """

    user: str = field(repr=False)
    password: str = field(repr=False)
    identity_token: str | None = field(default=None, repr=False)


def docker_credentials(host: str) -> Credentials | None:
    """The login for a registry; None if there is none.

    Raises:
        Unavailable: a credential helper or the configuration does not answer.
    """
    folder = os.environ.get("DOCKER_CONFIG")
    path = (Path(folder) if folder else Path.home() / ".docker") / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable(f"{path}: not readable ({type(error).__name__})") from error
    if not isinstance(config, dict):
        raise _unusable(f"{path}: no JSON object")
    server = _HUB.get(host, host)
    helper = _table(config, "credHelpers").get(server) or config.get("credsStore")
    if isinstance(helper, str):
        found = _from_helper(helper, server)
        if found is not None:
            return found
    auths = _table(config, "auths")
    for name in (server, f"https://{server}", f"https://{server}/v2/", f"http://{server}"):
        entry = auths.get(name)
        if isinstance(entry, dict):
            return _from_entry(entry, path)
    return None


def _from_entry(entry: dict[str, Any], path: Path) -> Credentials | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credentials("", "", token)
    auth = entry.get("auth")
    if not isinstance(auth, str) or not auth:
        return None
    try:
        user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _unusable(f"{path}: an entry of auths is no login") from None
    return Credentials(user, password.strip("\0"))


def _from_helper(helper: str, server: str) -> Credentials | None:
    if not _HELPER.fullmatch(helper):
        raise _unusable(f"credential helper {helper[:40]!r}: not the name of a program")
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=_HELPER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(f"{program}: does not answer ({type(error).__name__})") from None
    if done.returncode != 0:
        return None  # the protocol has no other way to say that there is no login
    try:
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise _unusable(f"{program}: its answer is no login") from None
    return Credentials("", "", secret) if user == "<token>" else Credentials(user, secret)


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _unusable(what: str) -> Unavailable:
    return Unavailable(
        what,
        hint="run `docker login REGISTRY` again, or point DOCKER_CONFIG at another directory",
        reference="oci-credentials-unusable",
    )
