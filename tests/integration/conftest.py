"""Servers that several modules share."""

from __future__ import annotations

import pytest

from tests.servers.dockerd import CannotStart, DockerDaemon, shared_daemon


@pytest.fixture(scope="session")
def docker_daemon() -> DockerDaemon:
    try:
        return shared_daemon()
    except CannotStart as error:
        pytest.skip(f"no Docker Engine: {error}")
