"""What came of bringing an engine or a release into a registry, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.cli.answer import Answer

if TYPE_CHECKING:
    from engine_pipeline.cli.render import Page
    from engine_registry.record import Release
    from engine_registry.registry import Registry
    from engine_registry.transfer import Arrival


def arrival_answer(arrival: Arrival, wanted: Release | None, to: Registry) -> Answer:
    """The answer of a command that brought something into `to`.

    Args:
        arrival: what happened.
        wanted: the release as it was called where it comes from.
        to: where it is now.
    """
    from engine_pipeline.cli.render import size

    document: dict[str, Any] = {
        "engine": str(arrival.engine),
        "release": arrival.release,
        "step": str(arrival.step),
        "registry": to.url,
        "sent": {"blobs": arrival.sent, "bytes": arrival.sent_bytes},
        "held": {
            "blobs": arrival.blobs - arrival.sent,
            "bytes": arrival.size_bytes - arrival.sent_bytes,
        },
        "kept_records": list(arrival.kept_records),
    }

    def page(out: Page) -> None:
        what = f"engine {arrival.engine}"
        if arrival.release is not None:
            what = f"release {arrival.release}"
        out.verdict("ok", f"{what} is in {to.url}")
        out.facts(
            [
                ("engine", arrival.engine if arrival.release else None),
                ("release", _what_happened(arrival, wanted)),
                ("sent", f"{arrival.sent} of {arrival.blobs} blobs, {size(arrival.sent_bytes)}"),
                ("records", _kept(arrival)),
                ("image", _image(wanted)),
                ("next", _next_step(arrival, to)),
            ]
        )

    return Answer(document=document, page=page)


def _what_happened(arrival: Arrival, wanted: Release | None) -> str | None:
    from engine_registry.transfer_plan import ReleaseStep

    if wanted is None:
        return None
    if arrival.step is ReleaseStep.CREATE:
        return "with its number and date"
    if arrival.step is ReleaseStep.RENUMBER:
        return (
            f"was {wanted.name} where it comes from; a signature of that name does not count here"
        )
    if arrival.release != wanted.name:
        return f"was there already; it is {wanted.name} where it comes from"
    return "was there already"


def _kept(arrival: Arrival) -> str | None:
    if not arrival.kept_records:
        return None
    return f"{len(arrival.kept_records)} of another build of the same bytes stayed"


def _image(wanted: Release | None) -> str | None:
    if wanted is None or wanted.content.serving_image.startswith("embedded:"):
        return None
    return f"{wanted.content.serving_image} is not in a registry of engines: bring it yourself"


def _next_step(arrival: Arrival, to: Registry) -> str:
    if arrival.release is None:
        return f"enginectl gate {arrival.engine.short} --registry {to.url}"
    return (
        f"enginectl promote {arrival.release} --to CHANNEL --registry {to.url}\n"
        "channels are not copied: their logs belong to their registry"
    )
