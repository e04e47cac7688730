"""The one error tree of engine-ci, and the exit codes that go with it.

Every error names the thing, both sides of a mismatch, and the next command to run. `reference` is a
stable kebab-case name that scripts and documents may rely on; `exit_code` is the process's answer.

    EngineCIError
    ├── InvalidInput            2   a spec, a policy, a reference or an option is wrong
    ├── JudgedAndRefused        3   a gate judged the engine and said no
    ├── CouldNotJudge           4   a gate errored or has too little evidence
    ├── RefusedByPolicy         5   approval, freeze, hold, soak, missing evidence
    ├── Incompatible            6   hardware or version does not fit
    ├── Conflict                7   somebody else moved first, or holds the lock
    │   ├── ChannelMoved
    │   └── DocumentConflict
    ├── NotFound                8   no such thing, or its bytes are missing
    ├── Unavailable             9   infrastructure; safe to run again
    └── IntegrityError         11   bytes do not match their digest

Adapters translate foreign exceptions at their edge; nothing above them sees `OSError` or a client
library's own classes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What a process's exit status means, the same for every command."""

    DONE = 0
    BUG = 1
    INVALID = 2
    REFUSED = 3
    COULD_NOT_JUDGE = 4
    POLICY = 5
    INCOMPATIBLE = 6
    CONFLICT = 7
    NOT_FOUND = 8
    UNAVAILABLE = 9
    DRIFT = 10
    INTEGRITY = 11


class EngineCIError(Exception):
    """An error that a user can act on.

    Args:
        message: one line: what happened to which thing, with both sides of a mismatch. What a
            terminal would obey (control characters, line breaks, reversed text) is escaped, since
            messages quote files that somebody else wrote.
        hint: one line: the next command to run or the thing to change.
        reference: stable kebab-case name; defaults to that of the class.
    """

    reference: ClassVar[str] = "unexpected"
    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, message: str, *, hint: str, reference: str | None = None) -> None:
        self.message: str = escaped(message)
        super().__init__(self.message)
        self.hint = hint
        self.name = reference or type(self).reference


def escaped(text: str) -> str:
    """The text with what a terminal would obey, and line breaks, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class InvalidInput(EngineCIError):
    """A spec, policy, reference or option is wrong; running again cannot help."""

    reference = "invalid-input"
    exit_code = ExitCode.INVALID


class JudgedAndRefused(EngineCIError):
    """A gate judged the engine and it did not pass."""

    reference = "gate-failed"
    exit_code = ExitCode.REFUSED


class CouldNotJudge(EngineCIError):
    """A gate errored, or the evidence is too thin for a verdict."""

    reference = "could-not-judge"
    exit_code = ExitCode.COULD_NOT_JUDGE


class RefusedByPolicy(EngineCIError):
    """A rule of the channel says no: approval, freeze, hold, soak or missing evidence."""

    reference = "refused-by-policy"
    exit_code = ExitCode.POLICY


class Incompatible(EngineCIError):
    """Hardware, driver or version does not fit."""

    reference = "incompatible"
    exit_code = ExitCode.INCOMPATIBLE


class Conflict(EngineCIError):
    """Somebody else moved first, or holds the lock; read the state and decide again."""

    reference = "conflict"
    exit_code = ExitCode.CONFLICT


class ChannelMoved(Conflict):
    """The channel is no longer at the event this move was decided on; nothing has happened."""

    reference = "channel-moved"


class DocumentConflict(Conflict):
    """A create-once document exists with other content; the stored one stays."""

    reference = "document-conflict"


class NotFound(EngineCIError):
    """There is no such thing here, or its bytes are missing."""

    reference = "not-found"
    exit_code = ExitCode.NOT_FOUND


class Unavailable(EngineCIError):
    """Infrastructure did not answer or is full; running the same command again is safe."""

    reference = "unavailable"
    exit_code = ExitCode.UNAVAILABLE


class IntegrityError(EngineCIError):
    """Stored bytes do not match their digest."""

    reference = "integrity"
    exit_code = ExitCode.INTEGRITY
