"""What a command answers: one document for machines, one rendering for people. One place prints.

Standard output carries the answer and nothing else; progress, notes and errors go to standard
error. A command builds an `Answer` and knows nothing about terminals.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.cli.render import Page

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a command.

    Attributes:
        document: plain JSON values; `schema_version` is added when printed.
        page: draws the same for people, when asked to.
        exit_code: 0, or what the result means (a failed gate is a result, not an error).
    """

    document: dict[str, Any]
    page: Callable[[Page], None]
    exit_code: int = 0


@dataclass(slots=True)
class Screen:
    """Where a process prints."""

    wants_json: bool = False
    notes: list[str] = field(default_factory=list)

    def show(self, answer: Answer) -> int:
        """Print the answer in the form asked for and return its exit code."""
        if self.wants_json:
            self.print_json(answer.document)
        else:
            from engine_pipeline.cli.render import Page

            page = Page()
            answer.page(page)
            page.flush()
        return answer.exit_code

    def print_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        whole = {"schema_version": SCHEMA_VERSION, **document}
        sys.stdout.write(json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        sys.stdout.flush()
