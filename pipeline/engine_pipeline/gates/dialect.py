"""How an endpoint's API differs from the one that requests are written in. Pure.

Every server knows chats and answers; what they differ in is which further fields they take. One
that does not know a field ignores it (llama.cpp's server), or answers 400 or 422 (most hosted ones,
`trtllm-serve`); some want `max_completion_tokens` for `max_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What becomes of the fields of a request.

    Attributes:
        dropped: fields that the endpoint refuses; they are not sent.
        renamed: field → what the endpoint calls it.
    """

    dropped: frozenset[str] = frozenset()
    renamed: tuple[tuple[str, str], ...] = ()

    def spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request as this endpoint takes it."""
        names = dict(self.renamed)
        return {
            names.get(name, name): value for name, value in body.items() if name not in self.dropped
        }


PLAIN = Dialect()
