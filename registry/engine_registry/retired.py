"""What is left of a release that garbage collection removed: enough for the log to stay readable.

An event may name a release that is gone. This document says that it is gone on purpose, which
engine it was, and who removed it; its number is never given again.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Document
from engine_registry.record import Actor, Text
from engine_registry.refs import Slug


class Retired(Document):
    """The end of a release."""

    model: Slug
    target: Slug
    number: Annotated[int, Field(ge=1)]
    release: Digest
    engine: Digest
    reason: Text
    actor: Actor
    at: AwareDatetime
