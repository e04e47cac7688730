"""Prompts to make load with: plain English words, every prompt another. Pure.

Two prompts differ within their first few tokens, so that a prefix cache helps no further than the
chat template; the same index gives the same prompt on every machine.
"""

from __future__ import annotations

import random

from engine_pipeline.gates.suite import Message

WORDS = (  # noqa: SIM905
    "river stone window garden paper winter bridge candle market silver forest letter engine "
    "harbour copper village orange thunder pencil mountain ladder kitchen feather meadow lantern "
    "station blanket compass ocean basket mirror valley hammer pillow desert violin carpet island "
    "pepper shadow tunnel cotton rocket saddle temple walnut button circle dragon farmer glacier "
    "helmet insect jacket kettle lemon magnet needle orchard pocket quarry ribbon sailor tailor "
    "umbrella velvet wagon yellow zebra acorn barrel canyon dinner elbow fabric gravel hollow"
).split()


def prompt(index: int, words: int) -> tuple[Message, ...]:
    """The chat of load request `index`, about `words` long; negative ones are for warming up."""
    # A text seed goes through SHA-512: stable across Python versions, and -1 is not 1.
    chosen = random.Random(str(index)).choices(WORDS, k=max(words - 5, 1))
    return (Message(role="user", content=f"{index}. Tell a story with {' '.join(chosen)}."),)
