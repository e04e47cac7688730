"""A parent's answers: asked once, kept beside the parent, used by every candidate after that.

They are found again by the digest of everything that decides them: suite, cases, runtime and its
configuration, device. Whoever changes one of these asks the parent anew.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_answer import TOP_TOKENS, ParentAnswers
from engine_pipeline.gates.parity_run import AskingEnded, ask_all
from engine_pipeline.gates.starter import Starter
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.gates.parity_result import Parent
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import Device
    from engine_pipeline.gates.suite import Case, Suite
    from engine_pipeline.progress import Progress
    from engine_registry.registry import Registry

ANSWERS_ARTIFACT = "application/vnd.engine-ci.parity-answers.v1+json"
ANSWERS_FILE = "answers.json"
# Keys of the annotations of attached answers.
ASKED = "org.engine-ci.parity.asked"
ASKED_SUITE = "org.engine-ci.parity.suite"
# Part of `asked`: raise it with every change to what is asked or how it is read.
_REVISION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentEngine:
    """A parent and all that starting its server takes.

    Attributes:
        engine: its digest, as `parent` names it.
        runtime_config: see `Backend.serve`.
        runtime: versions of what loads it, as it was recorded.
        place: as `run_gate`'s.
    """

    parent: Parent
    engine: Digest
    backend: Backend
    runtime_config: dict[str, Any]
    runtime: dict[str, str]
    place: Callable[[ServeCommand], AbstractContextManager[ServeCommand]] = nullcontext


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParent:
    """A parent that is not there, and what that means for the comparison."""

    parent: Parent
    outcome: Outcome
    why: str


def asked(parent: ParentEngine, suite: Suite, cases: Sequence[Case], device: Device) -> Digest:
    """The digest of everything that decides a parent's answers."""
    return Digest.of(
        canonical_json(
            {
                "revision": _REVISION,
                "engine": str(parent.engine),
                "suite": str(suite.digest),
                "cases": [case.id for case in cases],
                "top": TOP_TOKENS,
                "runtime": parent.runtime,
                "runtime_config": parent.runtime_config,
                "sku": device.sku,
                "host_class": device.host_class,
                **({} if device.driver is None else {"driver": device.driver}),
            }
        )
    )


def recorded(
    registry: Registry, engine: Digest, wanted: Digest
) -> tuple[ParentAnswers, Digest] | None:
    """Answers that are attached to a parent, and their attachment; None if there are none.

    Raises:
        NotFound, IntegrityError: bytes are missing, damaged, or about something else.
    """
    for link in registry.engines.referrers(engine, ANSWERS_ARTIFACT):
        if link.annotations.get(ASKED) != str(wanted):
            continue
        data = registry.engines.read_attachment(link.manifest).get(ANSWERS_FILE, b"")
        try:
            answers = ParentAnswers.model_validate_json(data)
        except ValidationError as error:
            raise _damaged(engine, link.manifest, "cannot be read") from error
        if (answers.engine, answers.asked) != (engine, wanted):
            raise _damaged(engine, link.manifest, f"are those of engine {answers.engine.short}")
        return answers, link.manifest
    return None


def record(
    registry: Registry,
    parent: ParentEngine,
    suite: Suite,
    cases: Sequence[Case],
    *,
    device: Device,
    policy: GatePolicy,
    progress: Progress,
    directory: Path,
) -> tuple[ParentAnswers, Digest]:
    """Serve the parent, ask it everything, and attach its answers to it.

    Raises:
        AskingEnded: it did not load, or did not answer everything it could be asked.
        NotFound, IntegrityError: it is not whole in the registry.
    """
    progress.phase("parity", f"parent {parent.engine.short}, {len(cases)} prompts")
    engine_dir = directory / f"parent-{parent.engine.hex[:16]}"
    if not engine_dir.is_dir():
        registry.engines.materialise(parent.engine, engine_dir)
    starter = Starter(
        backend=parent.backend,
        engine_dir=engine_dir,
        runtime_config=parent.runtime_config,
        runtime=parent.runtime,
        log_path=directory / "parent.log",
        progress=progress,
        timeout_s=policy.load_timeout_s,
        place=parent.place,
    )
    try:
        with starter.serve() as server:
            found = ask_all(server, suite, cases, timeout_s=policy.timeout_s, progress=progress)
    except (DidNotLoad, CouldNotServe) as error:
        raise AskingEnded(f"the parent: {error.message}", Outcome.ERRORED) from error
    except AskingEnded as error:
        raise AskingEnded(f"the parent: {error.reason}", Outcome.ERRORED) from error
    if not found.answers:
        why = next(iter(found.unanswered.values()), "no case to ask")
        raise AskingEnded(f"the parent answers no case: {why}", Outcome.ERRORED)
    answers = ParentAnswers(
        engine=parent.engine,
        suite=suite.digest,
        asked=asked(parent, suite, cases, device),
        sampling=suite.sampling,
        answers=tuple(found.answers.values()),
        unanswered=found.unanswered,
    )
    attached = registry.engines.attach(
        parent.engine,
        ANSWERS_ARTIFACT,
        [(ANSWERS_FILE, canonical_json(answers), "application/json")],
        {ASKED: str(answers.asked), ASKED_SUITE: suite.name},
    )
    return answers, attached


def _damaged(engine: Digest, attached: Digest, what: str) -> IntegrityError:
    return IntegrityError(
        f"answers {attached.short} of parent {engine.short} {what}",
        hint="run `enginectl verify`; a damaged attachment can be removed and is asked for anew",
        reference="parity-answers-damaged",
    )
