"""Who acts, and how that is said to be known."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime

import pytest

from engine_pipeline.actor import actor_from

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """An environment in which git knows nobody."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"),
        "GIT_DIR": str(tmp_path / "none"),
    }


def test_a_claimed_name_is_called_claimed_and_goes_first(environment):
    both = environment | {
        "ENGINECTL_ACTOR": " jane ",
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTOR": "x",
    }
    actor = actor_from(both, NOW)
    assert (actor.name, actor.proved_by) == ("jane", "claimed")


@pytest.mark.parametrize(
    ("flag", "variable"), [("GITHUB_ACTIONS", "GITHUB_ACTOR"), ("GITLAB_CI", "GITLAB_USER_LOGIN")]
)
def test_the_user_of_a_ci_system_counts_only_within_it(environment, flag, variable):
    actor = actor_from(environment | {flag: "true", variable: "octo"}, NOW)
    assert (actor.name, actor.proved_by) == ("octo", "ci-environment")
    assert actor_from(environment | {variable: "octo"}, NOW).proved_by == "os-user"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_an_address_in_git_is_recorded_with_the_user_who_claims_it(environment, tmp_path):
    (tmp_path / "gitconfig").write_text("[user]\nemail = jane@example.org\n")
    actor = actor_from(environment, NOW)
    assert actor.name == "jane@example.org"
    assert actor.proved_by.startswith("git-config, os-user ")


@pytest.mark.parametrize("email", ["", "jane", "jane <jane@example.org>"])
def test_what_is_no_address_in_git_leaves_the_system_user(environment, tmp_path, email):
    (tmp_path / "gitconfig").write_text(f'[user]\nemail = "{email}"\n')
    assert actor_from(environment, NOW).proved_by == "os-user"


def test_without_git_the_system_user_acts(environment, tmp_path):
    actor = actor_from(environment | {"PATH": str(tmp_path)}, NOW)
    assert actor.proved_by == "os-user"
    assert "@" in actor.name
