"""Steps of this kind that engine-ci runs itself, by revision of what they do to an engine."""

from __future__ import annotations

ASSEMBLE = "engine-ci/trtllm-assemble"
# Raised with every change that gives other files from the same inputs.
TOOLS = {ASSEMBLE: "1"}
