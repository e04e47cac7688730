"""Endpoints that others run, with their keys from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.judge_model import JudgeModel


def judge_of(model: JudgeModel | None) -> Endpoint | None:
    """Where a judge is; nobody is asked yet whether it is there.

    Raises:
        InvalidInput: the variable that should hold its key holds none.
    """
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.external import key_of, root_of

    if model is None:
        return None
    return Endpoint(
        base_url=root_of(model.endpoint),
        model=model.model,
        api_key=key_of(model.api_key_env, os.environ),
    )
