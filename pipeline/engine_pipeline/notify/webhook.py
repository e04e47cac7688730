"""A webhook as a destination: one POST per fact, signed, safe to repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.notify.settings import checked_url
from engine_pipeline.notify.sign import key_of, signature_headers
from engine_pipeline.redact import redact, without_path
from engine_pipeline.tracking.http import NoReply, Reply, Request, exchange, retry_after
from engine_pipeline.tracking.port import NotSent, Sent
from engine_registry.documents import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from engine_pipeline.notify.settings import WebhookSettings
    from engine_pipeline.tracking.facts import Fact


class Webhook:
    """One receiver.

    Args:
        name: as in notifications.yaml.
        settings: what notifications.yaml says of it.
        environment: where address and secrets are.
        clock: gives the aware UTC time.
        registry: what the body calls the registry.
        version: of the sender, for the user agent.
    """

    def __init__(
        self,
        name: str,
        settings: WebhookSettings,
        environment: Mapping[str, str],
        clock: Callable[[], datetime],
        *,
        registry: str,
        version: str,
    ) -> None:
        self.name = name
        self.settings = settings
        self._environment = environment
        self._clock = clock
        self._registry = registry
        self._version = version

    @property
    def max_age(self) -> timedelta | None:
        """Older facts are not sent."""
        return self.settings.max_age

    @property
    def place(self) -> str:
        """The address as far as it may be shown."""
        try:
            return without_path(self._url())
        except ValueError as error:
            return str(error)

    def wants(self, fact: Fact) -> bool:
        """Whether the receiver asked for this."""
        return self.settings.wants(fact)

    def deliver(self, fact: Fact, *, delivery: str, attempt: int) -> Sent | NotSent:
        """POST it; every 2xx is success, every other answer is not. No redirect is followed."""
        try:
            url, keys = self._url(), self._keys()
        except ValueError as error:
            return NotSent(detail=str(error), is_final=True)
        body = canonical_json(body_of(fact, self._registry))
        headers = {
            "content-type": "application/json",
            "user-agent": f"enginectl/{self._version}",
            "x-enginectl-event": str(fact.kind),
            "x-enginectl-attempt": str(attempt),
            **signature_headers(
                body,
                delivery=delivery,
                timestamp_s=int(self._clock().timestamp()),
                keys=keys,
            ),
        }
        try:
            reply = exchange(
                Request(
                    method="POST",
                    url=url,
                    headers=headers,
                    body=body,
                    timeout_s=self.settings.timeout.total_seconds(),
                )
            )
        except NoReply as error:
            return NotSent(detail=str(error))
        return self._judge(reply, url)

    def _judge(self, reply: Reply, url: str) -> Sent | NotSent:
        if 200 <= reply.status < 300:
            return Sent(detail=f"{reply.status} in {reply.took_ms:.0f} ms")
        place = without_path(url)
        if 300 <= reply.status < 400:
            to = without_path(reply.headers.get("location", ""))
            detail = f"{place}: {reply.status} leads to {to}; redirects are not followed"
            return NotSent(detail=detail)
        said = redact(reply.body[:200].decode(errors="replace"), url)
        said = " ".join("".join(c if c.isprintable() else " " for c in said).split())
        return NotSent(
            detail=f"{place}: {reply.status}" + (f": {said}" if said else ""),
            retry_after=retry_after(reply.headers.get("retry-after"), self._clock()),
        )

    def _url(self) -> str:
        name = self.settings.url_env
        if name is None:
            return self.settings.url or ""
        url = self._environment.get(name, "").strip()
        if not url:
            msg = f"environment variable {name} (url_env) is not set"
            raise ValueError(msg)
        try:
            return checked_url(url)
        except ValueError as error:
            msg = f"environment variable {name} (url_env): {error}"
            raise ValueError(msg) from None

    def _keys(self) -> tuple[bytes, ...]:
        keys = []
        for name in self.settings.secrets:
            secret = self._environment.get(name, "")
            if not secret.strip():
                msg = f"environment variable {name} (secrets) is not set"
                raise ValueError(msg)
            try:
                keys.append(key_of(secret))
            except ValueError as error:
                msg = f"environment variable {name} (secrets) {error}"
                raise ValueError(msg) from None
        return tuple(keys)


def body_of(fact: Fact, registry: str) -> dict[str, Any]:
    """The document that is sent. `text` is what chat systems show of a plain webhook."""
    values = fact.model_dump(mode="json", exclude={"kind"})
    return {"schema_version": 1, "event": str(fact.kind), "registry": registry, **values}
