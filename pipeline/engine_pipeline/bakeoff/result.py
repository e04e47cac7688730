"""The whole bake-off as one document: who was compared, what was found, which one to take. Pure.

Made from measurements that are stored, so it is made again in no time when a price changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import AwareDatetime

from engine_pipeline.bakeoff.caveats import caveats
from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.facts import facts_of
from engine_pipeline.bakeoff.file import BakeoffFile
from engine_pipeline.bakeoff.flips import Lever, flips
from engine_pipeline.bakeoff.rows import ContestantRow, FlipRow, contestant_row
from engine_pipeline.bakeoff.words import listed, recommendation
from engine_pipeline.gates.outcome import Outcome
from engine_registry.digest import Digest
from engine_registry.documents import Document, canonical_json
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from engine_pipeline.bakeoff.flips import Flip
    from engine_pipeline.bakeoff.measured import Measured, Unmeasured


class BakeoffResult(Document):
    """A bake-off, judged.

    Attributes:
        file: the file, whole, as it was judged by.
        winner: who leads; None if nobody is shown to meet the limits.
        tied: level with the winner in everything that counts: then the evidence does not tell.
        shaken: on whose times the choice rests though others disturbed them: then it is none.
        recommendation: one sentence.
        flips: what would change the choice; the smallest change of a price first.
        caveats: what the numbers do not say.
    """

    file: BakeoffFile
    file_digest: Digest
    made_at: AwareDatetime
    winner: Slug | None
    tied: tuple[Slug, ...]
    shaken: tuple[Slug, ...] = ()
    recommendation: str
    contestants: tuple[ContestantRow, ...]
    flips: tuple[FlipRow, ...]
    caveats: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """Passed with one to take; failed if everybody misses a limit; inconclusive in a tie.

        Inconclusive too where times decide that others on the machine disturbed. What could not be
        judged keeps nobody else from being taken, and is told.
        """
        if self.shaken:
            return Outcome.INCONCLUSIVE
        if self.winner is not None:
            return Outcome.INCONCLUSIVE if self.tied else Outcome.PASSED
        outcomes = {row.outcome for row in self.contestants}
        if outcomes == {Outcome.FAILED}:
            return Outcome.FAILED
        return Outcome.INCONCLUSIVE if Outcome.INCONCLUSIVE in outcomes else Outcome.ERRORED

    @property
    def leaders(self) -> tuple[str, ...]:
        """The winner and whoever is level with it; empty if nobody meets the limits."""
        return () if self.winner is None else (self.winner, *self.tied)

    @property
    def headline(self) -> str:
        """The choice in a few words."""
        said = listed(self.leaders) if self.leaders else "nobody"
        if self.shaken and not self.tied:
            return f"Not settled: {said} leads"
        if not self.leaders:
            return "Take none of them"
        return f"Too close to call: {said}" if self.tied else f"Take {said}"

    @property
    def in_order(self) -> tuple[ContestantRow, ...]:
        """Best first, then those without a place, in the file's order."""
        return tuple(sorted(self.contestants, key=lambda row: row.place or math.inf))


def judge_bakeoff(
    file: BakeoffFile,
    found: Mapping[str, Measured],
    unmeasured: Mapping[str, Unmeasured],
    now: datetime,
) -> BakeoffResult:
    """The document.

    Args:
        file: prices, limits and priorities.
        found: what was measured, by contestant.
        unmeasured: why nothing was, by contestant.
        now: when it is judged.
    """
    lanes = file.lanes or {}
    prices = {one.name: one.price for one in file.contestants}
    facts = [
        facts_of(one.name, found[one.name], one.price, lanes)
        for one in file.contestants
        if one.name in found
    ]
    decision = decide(facts, file.limits, file.optimise, lanes)
    turning = _smallest_price_first(flips(facts, file.limits, file.optimise, lanes))
    rows = tuple(
        contestant_row(one.name, found[one.name], prices[one.name], decision, file)
        if one.name in found
        else ContestantRow(
            name=one.name,
            place=None,
            outcome=unmeasured[one.name].outcome,
            reasons=(f"not measured: {unmeasured[one.name].why}",),
            price=one.price,
        )
        for one in file.contestants
    )
    return BakeoffResult(
        file=file,
        file_digest=Digest.of(canonical_json(file.model_dump(mode="json", by_alias=True))),
        made_at=now,
        winner=decision.winner,
        tied=decision.tied,
        shaken=decision.shaken,
        recommendation=recommendation(decision, file),
        contestants=rows,
        flips=tuple(FlipRow.of(flip, file) for flip in turning),
        caveats=caveats(file, found, unmeasured),
    )


def _smallest_price_first(turning: Sequence[Flip]) -> list[Flip]:
    """Prices by how far they move, as a share of what they are; then the rest as it comes."""

    def distance(flip: Flip) -> float:
        if flip.lever is not Lever.PRICE or flip.now is None:
            return math.inf
        return abs(flip.at - flip.now) / flip.now if flip.now else math.inf

    return sorted(turning, key=lambda flip: (flip.lever is not Lever.PRICE, distance(flip)))
