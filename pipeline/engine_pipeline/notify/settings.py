"""`notifications.yaml`: who is told of what. Pure values; secrets are named, never written here.

    schema_version: 1
    destinations:
      release-room:
        url_env: RELEASE_ROOM_URL
        secrets: [RELEASE_ROOM_SECRET]
        events: [promoted, rolled-back, gate-failed]
        products: ["llama-*/*"]

A file of its own: `channels.yaml` is read on the way of a promotion, which a mistake in a webhook
must not be able to stop.
"""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from engine_pipeline.promote.policy import Duration
from engine_pipeline.redact import redact, without_path
from engine_pipeline.tracking.facts import Kind
from engine_registry.documents import Value
from engine_registry.errors import NotFound
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.tracking.facts import Fact


def checked_url(url: str) -> str:
    """The address of a webhook, if it is one that may be called; raises ValueError."""
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.scheme in {"http", "https"} and parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isprintable() or " " in url:
        msg = f"{without_path(url)} is no http:// or https:// address"
        raise ValueError(msg)
    if parts.username is not None or parts.password is not None:
        msg = f"{without_path(url)} has a user name in it; receivers know us by the signature"
        raise ValueError(msg)
    return url


def _open_url(url: str) -> str:
    if redact(checked_url(url)) != url:
        msg = (
            f"{without_path(url)} seems to hold a secret; put the address into an environment "
            "variable and name that with url_env"
        )
        raise ValueError(msg)
    return url


def _subscribable(kind: Kind) -> Kind:
    if kind is Kind.TEST:
        msg = "test calls go to every receiver that is tested; leave it out"
        raise ValueError(msg)
    return kind


VariableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)
]
Url = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_open_url)]


class WebhookSettings(Value):
    """One receiver.

    Attributes:
        url: where to; for an address without a secret in it.
        url_env: the environment variable that holds the address.
        secrets: environment variables with the signing secrets, the newest first; one more while
            the receiver changes over.
        signed: whether requests are signed; false only for receivers that cannot check.
        products: patterns of MODEL/TARGET; facts about no product go to everybody.
        timeout: for one attempt, all of it.
        max_age: older facts are not sent any more.
    """

    url: Url | None = None
    url_env: VariableName | None = None
    secrets: Annotated[tuple[VariableName, ...], Field(max_length=3)] = ()
    signed: bool = True
    events: Annotated[
        tuple[Annotated[Kind, AfterValidator(_subscribable)], ...], Field(min_length=1)
    ]
    products: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    timeout: Duration = timedelta(seconds=10)
    max_age: Duration = timedelta(days=3)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            msg = "want either url or url_env"
            raise ValueError(msg)
        if self.signed != bool(self.secrets):
            msg = (
                "a signed webhook needs `secrets: [NAME_OF_VARIABLE]`; for a receiver that cannot "
                "check, write `signed: false`"
                if self.signed
                else "`signed: false` goes without secrets"
            )
            raise ValueError(msg)
        if not timedelta(0) < self.timeout <= timedelta(minutes=1):
            msg = "timeout is more than 0 s and at most 60 s"
            raise ValueError(msg)
        return self

    def wants(self, fact: Fact) -> bool:
        """Whether the receiver asked for this."""
        is_ours = fact.product is None or any(
            fnmatchcase(fact.product, pattern) for pattern in self.products
        )
        return fact.kind in self.events and is_ours


class Notifications(Value):
    """The whole of `notifications.yaml`."""

    schema_version: Literal[1]
    destinations: Annotated[dict[Slug, WebhookSettings], Field(min_length=1)]

    def named(self, name: str) -> WebhookSettings:
        """The receiver `name`; raises NotFound."""
        found = self.destinations.get(name)
        if found is None:
            raise NotFound(
                f"no destination {name!r} in notifications.yaml; there are "
                f"{', '.join(self.destinations)}",
                hint="name one of them, or add it under `destinations:`",
                reference="unknown-destination",
            )
        return found
