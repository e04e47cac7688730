"""Who runs the endpoint that a report is about, when it is not the gate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.redact import redact
from engine_registry.documents import Value
from engine_registry.record import Text

if TYPE_CHECKING:
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.dialect_probe import Manners
    from engine_pipeline.gates.suite import Suite

SAMPLING = "sampling"


class ServedBy(Value):
    """An endpoint that was judged as it is. Nothing proves which engine answered.

    Attributes:
        url: without the final `/v1`.
        model: as it was asked for.
        named_itself: what the answers call the model.
        dropped: fields that it refuses; they were not sent.
        renamed: field → its name for it.
        tells_usage: its streams end with the number of tokens.
    """

    url: Text
    model: Text
    named_itself: str | None = None
    dropped: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    tells_usage: bool = True

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"

    @property
    def differences(self) -> str:
        """How it differs from the API that was spoken, in words."""
        said = [f"refuses {', '.join(self.dropped)}"] if self.dropped else []
        said += [f"calls {old} {new}" for old, new in self.renamed.items()]
        said += [] if self.tells_usage else ["does not tell how many tokens there were"]
        return "; ".join(said) or "none found"


def served_by(endpoint: Endpoint, manners: Manners) -> ServedBy:
    """Who answers at an endpoint, and how it takes requests."""
    return ServedBy(
        url=redact(endpoint.base_url),
        model=endpoint.model,
        named_itself=manners.named_itself,
        dropped=tuple(sorted(manners.dialect.dropped)),
        renamed=dict(manners.dialect.renamed),
        tells_usage=manners.tells_usage,
    )


def drawn_by_default(served: ServedBy, suite: Suite) -> tuple[str, ...]:
    """What a suite or a case of it asks for that the endpoint draws as it likes, with its values.

    1.0 is what the API takes where nothing is said, so nothing is lost of it; nor of a seed.
    """
    asked = [suite.sampling_of(case) for case in suite.cases]
    values = {
        name: sorted({getattr(one, name) for one in asked} - {1.0})
        for name in ("temperature", "top_p")
        if name in served.dropped
    }
    return tuple(f"{name} {value:g}" for name, found in values.items() for value in found)


def sampling_finding(served: ServedBy, suite: Suite) -> tuple[Outcome, str] | None:
    """What it means that some of the sampling could not be sent; None if all of it was."""
    lost = [name for name in ("temperature", "top_p", "seed") if name in served.dropped]
    if not lost:
        return None
    if drawn := drawn_by_default(served, suite):
        return (
            Outcome.INCONCLUSIVE,
            f"the suite asks for {', '.join(drawn)}; the endpoint refuses that and draws its "
            "answers by its own default, so another run may answer otherwise",
        )
    return (
        Outcome.SKIPPED,
        f"not sent, since the endpoint refuses it: {', '.join(lost)}; answers are less repeatable",
    )
