"""From the contestants of a bake-off's file to engines of the registry and endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.bakeoff.entry import EngineEntry, Entry
    from engine_pipeline.bakeoff.file import BakeoffFile, Contestant
    from engine_pipeline.bakeoff.measured import Unmeasured
    from engine_pipeline.cli.wiring import Shell

# A key that this machine does not have: it may be set in the next run, and the file is right.
_NOT_SET = frozenset({"api-key-missing", "api-key-invalid"})


def entries_of(
    shell: Shell, file: BakeoffFile, environment: Mapping[str, str]
) -> dict[str, Entry | Unmeasured]:
    """Who can be asked, by name; who cannot is told at once, before the others are measured.

    Raises:
        InvalidInput: what the file says of somebody is wrong; what is only not there, or not set,
            makes a contestant that cannot be asked.
    """
    from engine_pipeline.bakeoff.entry import endpoint_entry
    from engine_pipeline.bakeoff.measured import Unmeasured
    from engine_pipeline.gates.outcome import Outcome
    from engine_registry.errors import EngineCIError, InvalidInput

    entries: dict[str, Entry | Unmeasured] = {}
    for contestant in file.contestants:
        try:
            if contestant.engine is None:
                entries[contestant.name] = endpoint_entry(
                    contestant, environment, timeout_s=file.timeout_s
                )
            else:
                entries[contestant.name] = _engine(shell, file, contestant, contestant.engine)
        except EngineCIError as error:
            if isinstance(error, InvalidInput) and error.name not in _NOT_SET:
                raise InvalidInput(
                    f"contestant {contestant.name}: {error.message}",
                    hint=error.hint,
                    reference=error.name,
                ) from error
            entries[contestant.name] = Unmeasured(outcome=Outcome.ERRORED, why=error.message)
            shell.progress.note(f"{contestant.name}: cannot be asked: {error.message}")
    return entries


def _engine(shell: Shell, file: BakeoffFile, contestant: Contestant, named: str) -> EngineEntry:
    from engine_pipeline.bakeoff.entry import EngineEntry, checked_identity
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.wiring_runs import place_for
    from engine_pipeline.promote.release import lock_of, runtime_config

    found = shell.registry.resolve(named)
    records = shell.registry.engines.records(found.engine)
    record = latest_record(records)
    if found.release is not None:
        record = next((r for r in records if r.digest == found.release.content.record), record)
    lock = lock_of(shell.registry, record)
    config = runtime_config(lock) if found.release is None else found.release.content.runtime_config
    return EngineEntry(
        identity=checked_identity(
            contestant, found.engine, lock.source.revision, lock.tokenizer.chat_template
        ),
        engine=found.engine,
        registry=shell.registry,
        backend=shell.backend(record.kind),
        device=shell.device(record),
        runtime_config=config,
        workdir=shell.cache_dir / "gates",
        load_timeout_s=file.load_timeout_s,
        place=place_for(lock, workdir=shell.cache_dir / "serve", progress=shell.progress),
    )
