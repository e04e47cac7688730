"""What a person types, turned into what is meant: digests, prefixes, releases, channels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef

if TYPE_CHECKING:
    from engine_registry.channels import ChannelLog
    from engine_registry.digest import Digest
    from engine_registry.engines import Engines
    from engine_registry.record import Release
    from engine_registry.releases import Releases
    from engine_registry.store import Stores

MIN_PREFIX = 8
_HEX = re.compile(r"(?:sha256:)?([0-9a-f]{1,64})")
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a reference names.

    Attributes:
        release: set if the reference was a release or a channel.
        channel: set if it was a channel; the release is the one live there.
    """

    engine: Digest
    release: Release | None = None
    channel: ChannelRef | None = None


class Resolver:
    """Looks references up in one registry."""

    def __init__(
        self, stores: Stores, engines: Engines, releases: Releases, channels: ChannelLog
    ) -> None:
        self._documents = stores.documents
        self._engines = engines
        self._releases = releases
        self._channels = channels

    def resolve(self, text: str) -> Resolved:
        """What `text` names: a digest, a unique prefix of one, a release or a channel.

        Raises:
            InvalidInput: no such form, or an ambiguous prefix (`ambiguous-reference`).
            NotFound: nothing here is called that.
        """
        match = _HEX.fullmatch(text)
        if match is not None:
            return Resolved(engine=self._engine(match.group(1), text))
        if ":" in text:
            release = self._releases.release(ReleaseRef.parse(text))
            return Resolved(engine=release.content.engine, release=release)
        if text.count("/") == 2:
            return self._live(ChannelRef.parse(text))
        raise InvalidInput(
            f"not a reference: {text[:120]!r} (want a digest, a prefix of at least {MIN_PREFIX} "
            "hex digits, MODEL/TARGET:N or MODEL/TARGET/CHANNEL)",
            hint="run `enginectl list` to list engines and releases, `enginectl status` channels",
            reference="invalid-reference",
        )

    def resolve_engine(self, text: str) -> Digest:
        """The engine that `text` names; raises as `resolve`."""
        return self.resolve(text).engine

    def resolve_release(self, text: str, product: ProductRef | None = None) -> Release:
        """The release that `text` names; an engine means its only release.

        Equal bytes may be built and released as several products: without `product`, one engine's
        releases of all of them count.

        Raises:
            InvalidInput: as `resolve`, a release of another than `product`, or an engine that was
                released more than once (`ambiguous-reference`).
            NotFound: as `resolve`, or the engine was never released.
        """
        found = self.resolve(text)
        if found.release is not None:
            of = ProductRef(found.release.model, found.release.target)
            if product is not None and of != product:
                raise InvalidInput(
                    f"{text}: is release {found.release.name}, not one of {product}",
                    hint=f"run `enginectl list --product {product}` to list its releases",
                    reference="other-product",
                )
            return found.release
        if product is not None:
            products = [product]
        else:
            records = self._engines.records(found.engine)
            products = sorted({ProductRef(record.model, record.target) for record in records})
        cut = [
            release
            for one in products
            for release in self._releases.releases(one)
            if release.content.engine == found.engine
        ]
        if not cut:
            raise NotFound(
                f"engine {found.engine.short}: never released as {' or '.join(map(str, products))}",
                hint=f"run `enginectl release {found.engine}`",
                reference="release-missing",
            )
        if len(cut) > 1:
            raise _ambiguous(text, [release.name for release in cut])
        return cut[0]

    def _engine(self, prefix: str, text: str) -> Digest:
        if len(prefix) < MIN_PREFIX:
            raise InvalidInput(
                f"prefix too short: {text!r} has {len(prefix)} hex digits, want {MIN_PREFIX}",
                hint="copy more of the digest from `enginectl list` or `enginectl status`",
                reference="prefix-too-short",
            )
        shard = f"{layout.RECORDS}/{prefix[:2]}"
        named = (c for c in self._documents.children(shard) if c.startswith(prefix))
        matches = [
            engine
            for engine in filter(None, map(layout.digest_of, named))
            if self._engines.is_recorded(engine)
        ]
        if not matches:
            raise NotFound(
                f"engine {text}: not in this registry",
                hint="run `enginectl list` to list engines and releases, or `enginectl build`",
                reference="engine-missing",
            )
        if len(matches) > 1:
            raise _ambiguous(text, [str(match) for match in matches])
        return matches[0]

    def _live(self, ref: ChannelRef) -> Resolved:
        live = self._channels.state(ref).live
        if live is None:
            raise NotFound(
                f"channel {ref}: nothing is live there",
                hint="run `enginectl status` to list channels, or `enginectl promote`",
                reference="nothing-live",
            )
        release = self._releases.release(ReleaseRef(ref.product, live.number))
        return Resolved(engine=live.engine, release=release, channel=ref)


def _ambiguous(text: str, matches: list[str]) -> InvalidInput:
    more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
    return InvalidInput(
        f"{text}: names {len(matches)} things: {', '.join(matches[:_SHOWN])}{more}",
        hint="give more digits, or the release's full name",
        reference="ambiguous-reference",
    )
