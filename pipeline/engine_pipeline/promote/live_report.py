"""The stored report of what was live when an engine was judged: what a reader sets it beside.

Found from the registry alone and by the report's own time, so it is the same whenever it is asked.
It decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.differences import Live, NoLive
from engine_pipeline.gates.report import CREATED, DEVICE, DRIVER, GATE, POLICY, SUITE, listing
from engine_pipeline.promote.evidence import read_report
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.manifest import REPORT_ARTIFACT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.differences import Beside
    from engine_pipeline.gates.report import Report
    from engine_registry.digest import Digest
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry

_COMPARABLE = {
    GATE: "this gate",
    POLICY: "these bars",
    SUITE: "this suite",
    DEVICE: "this class of host",
    DRIVER: "this driver",
}


def report_of_live(registry: Registry, report: Report, channels: Sequence[ChannelRef]) -> Beside:
    """What was live on the first of `channels` that served anything then, with its report.

    An engine that the report was compared with in turn goes before them. Comparable is a report of
    the same gate, bars, suite, class of host and driver; the newest that is not newer than
    `report` is taken.
    """
    compared = report.paired.baseline if report.paired else None
    if compared is not None and compared.engine is not None:
        release = f", release {compared.release}" if compared.release else ""
        return _newest(registry, compared.engine, f"{compared.named}{release}", report)
    for ref in channels:
        state = registry.channels.at_time(ref, report.finished_at)
        if state.live is None:
            continue
        engine = state.live.engine
        named = f"{ref}, release {state.live.number}"
        if engine == report.engine:
            return NoLive(reason=f"this engine was itself live on {named}")
        return _newest(registry, engine, named, report)
    where = ", ".join(map(str, channels)) or "any channel of this product"
    return NoLive(reason=f"nothing was live on {where}")


def _newest(registry: Registry, engine: Digest, named: str, report: Report) -> Beside:
    wanted = listing(report)
    same = {key: wanted[key] for key in _COMPARABLE if key in wanted}
    links = [
        link
        for link in registry.engines.referrers(engine, REPORT_ARTIFACT)
        if same.items() <= link.annotations.items()
        and link.annotations.get(CREATED, "") <= wanted[CREATED]
    ]
    if not links:
        words = ", ".join(_COMPARABLE[key] for key in same)
        return NoLive(
            reason=f"engine {engine.short} was live on {named}, and has no report of its own on "
            f"{words}: enginectl gate {engine.short} --gate {report.gate}"
        )
    newest = max(links, key=lambda link: link.annotations[CREATED])
    try:
        found = read_report(registry, engine, newest.manifest)
    except (NotFound, IntegrityError) as error:
        return NoLive(reason=f"the report of what was live on {named} is lost: {error.message}")
    return Live(named=named, attached=newest.manifest, report=found)
