"""`channels.yaml`: who may go live where, and on what evidence. Kept outside the specs it governs.

Pure values; reading the file is `yaml_file`'s. The digest of a gate policy is part of each report,
so a report made under softer bars is no evidence under harder ones.
"""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    model_validator,
)

from engine_pipeline.compat.fit import Untested
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.promote.duration import read_duration, say_duration
from engine_pipeline.promote.window import Window
from engine_pipeline.trust.policy import Role, TrustedSigner
from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.refs import Slug
from engine_registry.retention import Retention

if TYPE_CHECKING:
    from engine_registry.refs import ChannelRef, ProductRef

NodeFile = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
# How an actor's name is proved; see `engine_pipeline.actor`.
Proof = Literal["github-oidc", "ci-environment", "git-config", "os-user", "claimed"]
PROVEN: tuple[Proof, ...] = ("github-oidc", "ci-environment", "git-config", "os-user")
Duration = Annotated[
    timedelta,
    BeforeValidator(read_duration, json_schema_input_type=str),
    PlainSerializer(say_duration, return_type=str),
]


class ChannelPolicy(Value):
    """What a release must show before it goes live on a channel.

    Attributes:
        gates: names of gates whose latest report on the engine must have passed.
        upstream: channel on which the release must have been live before.
        soak: how long it must have been live there.
        evidence_max_age: how old a passed report may be.
        approvals: how many people must approve; neither who built it nor who promotes it counts.
        approvals_proved_by: what has to prove the names of those who approve, and of who promotes
            where approvals are asked for; a name that was only typed (`claimed`) does not count.
        signed: build, gate, release: what must be signed by whom `trust:` lets sign it.
        nodes: JSON files beside `channels.yaml`, one per node that serves the channel; a release
            must load on each, as `enginectl check` says.
        accepts: what may be untested there: another board of the same compute capability
            (`same-sm-other-sku`), a driver older than the release's own (`older-driver`).
        windows: when promotions may happen; none means at any time. Rollbacks always may.
    """

    gates: Annotated[tuple[Slug, ...], Field(min_length=1)]
    upstream: Slug | None = None
    soak: Duration = timedelta(0)
    evidence_max_age: Duration = timedelta(days=30)
    approvals: Annotated[int, Field(ge=0, le=20)] = 0
    approvals_proved_by: Annotated[tuple[Proof, ...], Field(min_length=1)] = PROVEN
    signed: tuple[Role, ...] = ()
    windows: tuple[Window, ...] = ()
    nodes: tuple[NodeFile, ...] = ()
    accepts: tuple[Untested, ...] = ()

    @model_validator(mode="after")
    def _soaks_somewhere(self) -> Self:
        if self.soak and self.upstream is None:
            msg = f"soak {say_duration(self.soak)} needs an upstream channel to soak on"
            raise ValueError(msg)
        return self

    @property
    def digest(self) -> Digest:
        """The digest that a promotion records as the policy it was decided under."""
        return Digest.of(canonical_json(self))


class RetentionPolicy(Retention):
    """How much garbage collection keeps of each product; see `Retention`."""

    released_for: Duration = Retention.model_fields["released_for"].default
    unreleased_for: Duration = Retention.model_fields["unreleased_for"].default


class ProductPolicy(Value):
    """Rules for the products (`MODEL/TARGET`) that match one of the patterns.

    Attributes:
        retention: without it garbage collection keeps everything of them.
    """

    products: Annotated[tuple[str, ...], Field(min_length=1)]
    channels: Annotated[dict[Slug, ChannelPolicy], Field(min_length=1)]
    retention: RetentionPolicy | None = None

    @model_validator(mode="after")
    def _upstreams_exist(self) -> Self:
        for name, channel in self.channels.items():
            seen = {name}
            upstream = channel.upstream
            while upstream is not None:
                if upstream not in self.channels:
                    known = ", ".join(self.channels)
                    msg = f"channels.{name}: upstream {upstream} is not one of {known}"
                    raise ValueError(msg)
                if upstream in seen:
                    msg = f"channels.{name}: upstream {upstream} leads back to itself"
                    raise ValueError(msg)
                seen.add(upstream)
                upstream = self.channels[upstream].upstream
        return self


class Policies(Value):
    """The whole of `channels.yaml`.

    Attributes:
        trust: whose signatures count, and for what.
    """

    schema_version: Literal[1]
    trust: tuple[TrustedSigner, ...] = ()
    gates: Annotated[dict[Slug, GatePolicy], Field(min_length=1)]
    policies: Annotated[tuple[ProductPolicy, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _gates_exist(self) -> Self:
        for at, policy in enumerate(self.policies):
            for name, channel in policy.channels.items():
                unknown = sorted(set(channel.gates) - set(self.gates))
                if unknown:
                    lacks = f"no gate {', '.join(unknown)}; there are {', '.join(self.gates)}"
                    msg = f"policies.{at}.channels.{name}: {lacks}"
                    raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _somebody_may_sign(self) -> Self:
        names = [signer.name for signer in self.trust]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"trust: {', '.join(twice)} is named twice"
            raise ValueError(msg)
        may = {role for signer in self.trust for role in signer.may_sign}
        for at, policy in enumerate(self.policies):
            for name, channel in policy.channels.items():
                nobody = sorted(set(channel.signed) - may)
                if nobody:
                    roles = ", ".join(nobody)
                    msg = f"policies.{at}.channels.{name}: signed {roles}, but no key may sign it"
                    raise ValueError(msg)
        return self

    @property
    def node_files(self) -> tuple[str, ...]:
        """Every description of a node that some channel names, each once."""
        channels = (c for policy in self.policies for c in policy.channels.values())
        return tuple(dict.fromkeys(name for channel in channels for name in channel.nodes))

    def for_product(self, product: ProductRef) -> ProductPolicy:
        """The first policy whose patterns match; no policy is no permission (NotFound)."""
        for policy in self.policies:
            if any(fnmatchcase(str(product), pattern) for pattern in policy.products):
                return policy
        raise NotFound(
            f"no policy in channels.yaml covers {product}",
            hint=f"add an entry with `products: [{product}]` to channels.yaml",
            reference="no-policy",
        )

    def retention(self, product: ProductRef) -> RetentionPolicy | None:
        """How much is kept of a product; None, and everything is, if nothing here says so."""
        try:
            return self.for_product(product).retention
        except NotFound:
            return None

    def for_channel(self, ref: ChannelRef) -> ChannelPolicy:
        """The rules of one channel; raises NotFound or InvalidInput."""
        policy = self.for_product(ref.product)
        found = policy.channels.get(ref.channel)
        if found is None:
            raise InvalidInput(
                f"{ref.product} has no channel {ref.channel!r}; "
                f"channels.yaml names {', '.join(policy.channels)}",
                hint=f"use one of {', '.join(policy.channels)}, or add it to channels.yaml",
                reference="unknown-channel",
            )
        return found

    def gate(self, name: str) -> GatePolicy:
        """The bars of a gate; raises InvalidInput."""
        found = self.gates.get(name)
        if found is None:
            raise InvalidInput(
                f"no gate {name!r} in channels.yaml; there are {', '.join(sorted(self.gates))}",
                hint="name one of them, or add it under `gates:` in channels.yaml",
                reference="unknown-gate",
            )
        return found
