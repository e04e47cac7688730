"""Who acts: taken from what proves it, and stored with how it was proved."""

from __future__ import annotations

import getpass
import os
import socket
from typing import TYPE_CHECKING

from engine_registry.record import Actor

if TYPE_CHECKING:
    from collections.abc import Mapping


def actor_from(environment: Mapping[str, str]) -> Actor:
    """The actor of this process.

    In order: `ENGINECTL_ACTOR` (proved by nothing: `claimed`), the CI system's user
    (`GITHUB_ACTOR`, `GITLAB_USER_LOGIN`: `ci-environment`), the system's user (`os-user`).
    """
    if claimed := environment.get("ENGINECTL_ACTOR", "").strip():
        return Actor(name=claimed[:200], proved_by="claimed")
    for flag, name in (("GITHUB_ACTIONS", "GITHUB_ACTOR"), ("GITLAB_CI", "GITLAB_USER_LOGIN")):
        if environment.get(flag) == "true" and environment.get(name):
            return Actor(name=environment[name][:200], proved_by="ci-environment")
    return Actor(name=f"{_os_user()}@{socket.gethostname()}", proved_by="os-user")


def _os_user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return getpass.getuser()
