"""Who acts: taken from what proves it, and stored with how it was proved.

    proved_by                            worth
    claimed                              nothing: whoever runs the process typed it
    github-oidc REPOSITORY REF run ID    GitHub signed it for this job, and that was verified here
    ci-environment                       the CI system set it; any step of the job could change it
    git-config, os-user USER@HOST        a claim of git's configuration, made by that user
    os-user                              the kernel of that host knows who runs the process

None of these is checked by anybody later. What has to hold against whoever can write to the
registry is signed (`trust/`): a key proves what a name only says.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from typing import TYPE_CHECKING

from engine_registry.record import Actor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_MAX_NAME = 200
_EMAIL = re.compile(r"[^\s@<>]+@[^\s@<>]+")
# Reading a configuration file takes milliseconds; on a dead network mount git must not hang us.
_GIT_TIMEOUT_S = 2


def actor_from(environment: Mapping[str, str], now: datetime) -> Actor:
    """The actor of this process.

    In order: `ENGINECTL_ACTOR`; the user in the token of a GitHub job that may ask for one; the CI
    system's user as the environment names it (`GITHUB_ACTOR`, `GITLAB_USER_LOGIN`); the e-mail
    address that git would commit with, which is the same on every machine of a person, with
    the system's user beside it; the system's user.
    """
    if claimed := environment.get("ENGINECTL_ACTOR", "").strip():
        return Actor(name=claimed[:_MAX_NAME], proved_by="claimed")
    if environment.get("ACTIONS_ID_TOKEN_REQUEST_URL"):
        from engine_pipeline.trust.github_oidc import github_identity

        if job := github_identity(environment, now):
            proof = f"github-oidc {job.repository} {job.ref} run {job.run_id}"
            return Actor(name=job.actor[:_MAX_NAME], proved_by=proof[:_MAX_NAME])
    for flag, name in (("GITHUB_ACTIONS", "GITHUB_ACTOR"), ("GITLAB_CI", "GITLAB_USER_LOGIN")):
        if environment.get(flag) == "true" and environment.get(name):
            return Actor(name=environment[name][:_MAX_NAME], proved_by="ci-environment")
    user = f"{_os_user()}@{socket.gethostname()}"
    if email := _git_email(environment):
        return Actor(name=email, proved_by=f"git-config, os-user {user}"[:_MAX_NAME])
    return Actor(name=user, proved_by="os-user")


def _git_email(environment: Mapping[str, str]) -> str | None:
    """The address in git's configuration; None without git, without one, or if git is slow."""
    try:
        done = subprocess.run(
            ["git", "config", "--get", "user.email"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    email = done.stdout.decode(errors="replace").strip()[:_MAX_NAME]
    return email if done.returncode == 0 and _EMAIL.fullmatch(email) else None


def _os_user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return getpass.getuser()
