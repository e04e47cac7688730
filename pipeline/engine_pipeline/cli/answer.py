"""What a command answers: one document for machines, one rendering for people. One place prints.

Standard output carries the answer and nothing else; progress, notes and errors go to standard
error. A command builds an `Answer` and knows nothing about terminals.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
            with standard_output():
                answer.page(page)
                page.flush()
        return answer.exit_code

    def print_json(self, document: dict[str, Any]) -> None:
        """Write one JSON document to standard output."""
        whole = {"schema_version": SCHEMA_VERSION, **document}
        text = json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        with standard_output():
            sys.stdout.write(text)
            sys.stdout.flush()


@contextmanager
def standard_output() -> Iterator[None]:
    """What is printed inside ends in one line if it cannot be: a full disk, a closed descriptor.

    Raises:
        Unavailable: standard output takes nothing (`output-unwritable`).
        BrokenPipeError: whoever read it has gone, as `head` does.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> Unavailable:
    """The error to report; what could not be printed is dropped, so that leaving is silent."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Unavailable(
        f"standard output: {error.strerror}",
        hint="make room there or send it elsewhere, then run the same command again",
        reference="output-unwritable",
    )
