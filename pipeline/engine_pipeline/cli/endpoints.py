"""Endpoints that others run, with their keys from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.policy import GatePolicy


def judge_of(policy: GatePolicy) -> Endpoint | None:
    """Where the policy's judge is; nobody is asked yet whether it is there.

    Raises:
        InvalidInput: the variable that should hold its key holds none.
    """
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.external import key_of, root_of

    if policy.judge is None:
        return None
    return Endpoint(
        base_url=root_of(policy.judge.endpoint),
        model=policy.judge.model,
        api_key=key_of(policy.judge.api_key_env, os.environ),
    )
