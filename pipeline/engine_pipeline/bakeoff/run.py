"""The whole bake-off: each contestant served, measured and stopped before the next one starts.

What was measured before is taken from the work directory. A contestant that cannot be measured ends
up as the reason why, and the others go on; an interruption loses the one that was being measured.
The client is measured once, before the first contestant that has to be.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.entry import key_of
from engine_pipeline.bakeoff.kept import keep, load_kept, only_one
from engine_pipeline.bakeoff.measure import measure_contestant
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.versions import client_versions
from engine_pipeline.redact import masked, masked_in, redact
from engine_registry.errors import EngineCIError, IntegrityError, JudgedAndRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from engine_pipeline.bakeoff.entry import Entry
    from engine_pipeline.bakeoff.trial import Trial
    from engine_pipeline.gates.paired_result import ClientOverhead
    from engine_pipeline.progress import Progress
    from engine_registry.digest import Digest


def run_bakeoff(
    trial: Trial,
    entries: Mapping[str, Entry | Unmeasured],
    *,
    workdir: Path,
    again: bool,
    self_test: Callable[[], ClientOverhead],
    progress: Progress,
    clock: Callable[[], datetime],
) -> dict[str, Measured | Unmeasured]:
    """What was measured of each contestant, in the order of `entries`.

    Args:
        trial: what is asked.
        entries: who is asked, or why that is not possible.
        workdir: where measurements are kept.
        again: measure anew what is kept.
        self_test: measures what the client adds; asked once, if anything is measured at all.
        progress: told of each phase.
        clock: aware UTC time.

    Raises:
        CouldNotJudge: the self-test failed.
        Conflict: another bake-off is at work in `workdir`.
        Unavailable: `workdir` cannot be used.
    """
    found: dict[str, Measured | Unmeasured] = {}
    overhead = cache(self_test)
    with only_one(workdir):
        for number, (name, entry) in enumerate(entries.items(), start=1):
            if isinstance(entry, Unmeasured):
                found[name] = entry
                continue
            key = key_of(entry, trial)
            known = None if again else _known(workdir, key, name, progress)
            if known is not None:
                at = f"{known.finished_at:%Y-%m-%d %H:%M} UTC"
                progress.note(f"{name}: measured at {at}; --again measures anew")
                found[name] = known
                continue
            progress.note(f"{name}: contestant {number} of {len(entries)}")
            made = _measure(entry, key, trial, overhead(), progress, clock)
            if isinstance(made, Unmeasured):
                progress.note(f"{name}: {made.outcome}: {made.why}")
            elif made.unreached:
                progress.note(f"{name}: {made.unreached} requests were not taken; not kept")
            else:
                keep(workdir, made)
            found[name] = made
    return found


def _known(workdir: Path, key: Digest, name: str, progress: Progress) -> Measured | None:
    try:
        return load_kept(workdir, key)
    except IntegrityError as error:
        progress.note(f"{name}: measured anew: {error.message}")
        return None


def _measure(
    entry: Entry,
    key: Digest,
    trial: Trial,
    overhead: ClientOverhead,
    progress: Progress,
    clock: Callable[[], datetime],
) -> Measured | Unmeasured:
    started_at = clock()
    try:
        with entry.serve(progress) as served:
            parts = measure_contestant(served, trial, progress)
            load_s, by = served.load_s, served.by
    except EngineCIError as error:
        outcome = Outcome.FAILED if isinstance(error, JudgedAndRefused) else Outcome.ERRORED
        return Unmeasured(outcome=outcome, why=redact(masked(error.message, entry.secret)))
    measured = Measured(
        key=key,
        identity=entry.identity,
        device=entry.device,
        started_at=started_at,
        finished_at=clock(),
        load_s=None if load_s is None else round(load_s, 3),
        suites=parts.suites,
        steps=parts.steps,
        # A bar that is missed by less than the client adds is not missed for sure.
        lanes=tuple(lane.model_copy(update={"client": overhead}) for lane in parts.lanes),
        structured=parts.structured,
        foreign_cpu=parts.foreign_cpu,
        overhead=overhead,
        client=client_versions(),
        judge=parts.advisers.judge_used(),
        embeddings=parts.advisers.embeddings_used(),
        check_code=tuple(trial.advice.code.values()),
        served_by=by,
    )
    if entry.secret is None:
        return measured
    # A server may have repeated the key in an answer or in an error.
    return Measured.model_validate(masked_in(measured.model_dump(mode="json"), entry.secret))
