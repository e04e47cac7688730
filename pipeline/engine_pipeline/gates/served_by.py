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


def sampling_finding(served: ServedBy, suite: Suite) -> tuple[Outcome, str] | None:
    """What it means that some of the sampling could not be sent; None if all of it was."""
    lost = [name for name in ("temperature", "top_p", "seed") if name in served.dropped]
    if not lost:
        return None
    asked = suite.sampling.model_dump()
    # 1.0 is what the API takes where nothing is said, so nothing is lost.
    drawn = [name for name in lost if name != "seed" and asked[name] != 1.0]
    if drawn:
        wanted = ", ".join(f"{name} {asked[name]:g}" for name in drawn)
        return (
            Outcome.INCONCLUSIVE,
            f"the suite asks for {wanted}; the endpoint refuses that and draws its answers by "
            "its own default, so another run may answer otherwise",
        )
    return (
        Outcome.SKIPPED,
        f"not sent, since the endpoint refuses it: {', '.join(lost)}; answers are less repeatable",
    )
