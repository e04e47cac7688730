"""From a contestant of the file to somebody who can be asked, one at a time.

An engine is laid out, loaded and stopped here; an endpoint is only asked what it serves. Each entry
knows the digest that its measurement is kept under before anything runs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from engine_pipeline.bakeoff.measure import Served
from engine_pipeline.bakeoff.measured import Identity
from engine_pipeline.gates.dialect_probe import find_manners
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.external import external
from engine_pipeline.gates.external import key_of as endpoint_key
from engine_pipeline.gates.gate_zero import not_ready
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.scratch import scratch
from engine_pipeline.gates.served_by import served_by
from engine_pipeline.gates.server import log_lines
from engine_pipeline.gates.starter import Starter
from engine_pipeline.gates.suite import Sampling
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import CouldNotJudge, InvalidInput, JudgedAndRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.bakeoff.file import Contestant, HostedPlace
    from engine_pipeline.bakeoff.trial import Trial
    from engine_pipeline.gates.report import Device
    from engine_pipeline.progress import Progress
    from engine_registry.registry import Registry

# As suites draw: what a server refuses of it must be known before it is asked anything.
_GREEDY = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=16)


class Entry(Protocol):
    """Somebody who can be asked."""

    @property
    def identity(self) -> Identity:
        """Who it is."""
        ...

    @property
    def device(self) -> Device | None:
        """What it runs on; None if that is not known."""
        ...

    @property
    def secret(self) -> str | None:
        """What must not be written anywhere."""
        ...

    def facts(self) -> dict[str, Any]:
        """Everything besides `identity` and `device` that the numbers depend on."""
        ...

    def serve(self, progress: Progress) -> AbstractContextManager[Served]:
        """Ready to be asked while the block lasts; raises EngineCIError."""
        ...


def key_of(entry: Entry, trial: Trial) -> Digest:
    """What a measurement is kept under: who, where, and everything that is asked."""
    device = entry.device
    return Digest.of(
        canonical_json(
            {
                "who": entry.identity.model_dump(mode="json"),
                "where": None if device is None else device.model_dump(mode="json"),
                "how": entry.facts(),
                "asked": trial.asked(),
            }
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """An engine of the registry, served on this machine.

    Attributes:
        runtime_config: what its server is started with.
        workdir: where its files are laid out while it is served.
        place: turns the backend's command into the one that is started on this machine.
    """

    identity: Identity
    engine: Digest
    registry: Registry
    backend: Backend
    device: Device
    runtime_config: dict[str, Any]
    workdir: Path
    load_timeout_s: float
    place: Callable[[ServeCommand], AbstractContextManager[ServeCommand]]
    secret: str | None = None

    def facts(self) -> dict[str, Any]:
        """What its server is started with."""
        return {"runtime_config": self.runtime_config}

    @contextmanager
    def serve(self, progress: Progress) -> Iterator[Served]:
        """A fresh server, stopped with the block.

        Raises:
            JudgedAndRefused: it does not load; says why in the words of its kind.
            CouldNotJudge: it did not get ready, which is not its own fault.
            NotFound, IntegrityError: its bytes are missing or wrong.
        """
        with scratch(self.workdir) as directory:
            progress.phase("load", f"engine {self.engine.short}")
            self.registry.engines.materialise(self.engine, directory / "engine")
            starter = Starter(
                backend=self.backend,
                engine_dir=directory / "engine",
                runtime_config=self.runtime_config,
                runtime=self.device.runtime,
                log_path=directory / "server.log",
                progress=progress,
                timeout_s=self.load_timeout_s,
                place=self.place,
            )
            try:
                with starter.serve() as server:
                    yield Served(
                        endpoint=server.endpoint,
                        ended=server.ended,
                        is_ours=starter.is_ours,
                        load_s=server.load_s,
                    )
            except (DidNotLoad, CouldNotServe) as error:
                told = not_ready(error, self.backend.words, log_lines(starter.log_path))
                kind = JudgedAndRefused if told.outcome is Outcome.FAILED else CouldNotJudge
                raise kind(
                    f"engine {self.engine.short} was not ready: {told.reason}",
                    hint=error.hint,
                    reference=error.name,
                ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """An endpoint that somebody else runs.

    Attributes:
        secret: its key, if it wants one.
        timeout_s: how long it may take to say how it takes requests.
    """

    identity: Identity
    place: HostedPlace
    timeout_s: float
    secret: str | None = None
    device: Device | None = None

    def facts(self) -> dict[str, Any]:
        """Whose key is sent: another account may get another service."""
        return {"api_key_env": self.place.api_key_env}

    @contextmanager
    def serve(self, progress: Progress) -> Iterator[Served]:
        """The endpoint, spoken to as it wants; raises as `external` and `find_manners` do."""
        progress.phase("endpoint", self.identity.what)
        endpoint = external(self.place.url, self.place.model, api_key=self.secret)
        manners = asyncio.run(find_manners(endpoint, _GREEDY, timeout_s=self.timeout_s))
        yield Served(
            endpoint=replace(endpoint, dialect=manners.dialect),
            ended=lambda: None,
            is_ours=False,
            by=served_by(endpoint, manners),
        )


def endpoint_entry(
    contestant: Contestant, environment: Mapping[str, str], *, timeout_s: float
) -> EndpointEntry:
    """The entry of a contestant with `endpoint`; a request may take `timeout_s`.

    Raises:
        InvalidInput: the variable of its key is not set, or holds no key; never shows it.
    """
    place = contestant.endpoint
    if place is None or contestant.model_revision is None or contestant.chat_template is None:
        msg = f"{contestant.name} is no endpoint"
        raise RuntimeError(msg)
    return EndpointEntry(
        identity=Identity(
            what=f"{place.model} at {place.url}",
            model_revision=contestant.model_revision,
            chat_template=contestant.chat_template,
            verified=False,
        ),
        place=place,
        timeout_s=timeout_s,
        secret=endpoint_key(place.api_key_env, environment),
    )


def checked_identity(
    contestant: Contestant, engine: Digest, revision: str, template: Digest | None
) -> Identity:
    """Who an engine is, where the file agrees with what it was built from.

    Raises:
        InvalidInput: the file states another revision or template.
    """
    known = "none" if template is None else str(template)
    for what, stated, built in (
        ("model_revision", contestant.model_revision, revision),
        ("chat_template", contestant.chat_template, known),
    ):
        if stated is not None and stated != built:
            raise InvalidInput(
                f"the file states {what} {stated}, the engine was built from {built}",
                hint="correct the file, or name the engine that is meant",
                reference="bakeoff-identity-differs",
            )
    return Identity(
        what=f"engine {engine.short}",
        engine=engine,
        model_revision=revision,
        chat_template=known,
        verified=True,
    )
