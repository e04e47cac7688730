"""Releases: numbered from 1 within MODEL/TARGET, immutable, equal contents only once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.ahead import ahead
from engine_registry.documents import seal, unseal
from engine_registry.errors import DocumentConflict, IntegrityError, InvalidInput, NotFound
from engine_registry.record import Release
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.rescue import rescue_release
from engine_registry.retired import Retired
from engine_registry.touched import Act

if TYPE_CHECKING:
    from datetime import datetime

    from engine_registry.engines import Engines
    from engine_registry.record import Actor, ReleaseContent
    from engine_registry.store import Stores
    from engine_registry.touched import Touches


class Releases:
    """Every release of one registry."""

    def __init__(self, stores: Stores, engines: Engines, touches: Touches) -> None:
        self._stores = stores
        self._documents = stores.documents
        self._engines = engines
        self._touches = touches

    def create_release(
        self, product: ProductRef, content: ReleaseContent, actor: Actor, at: datetime
    ) -> Release:
        """Cut a release; if these contents are one already, that one.

        The engine is checked whole first, and everything the release names must be stored.

        Raises:
            NotFound: the engine, its bytes, the record or a piece of evidence is missing.
            IntegrityError: the engine's bytes are wrong.
        """
        held = self.numbers(product)
        for number in held:
            release = self.release(ReleaseRef(product, number))
            if release.content == content:
                self.keep_whole(release)
                return release
        self._refuse_incomplete(content)
        self._touches.note(content.engine, Act.RELEASED)
        # A number never comes back: what is left of a retired release counts.
        number = max([*held, *self._retired_numbers(product)], default=0) + 1
        while True:
            release = Release(
                model=product.model,
                target=product.target,
                number=number,
                content=content,
                created_by=actor,
                created_at=at,
            )
            try:
                self._documents.create(layout.release(ReleaseRef(product, number)), seal(release))
            except DocumentConflict:
                theirs = self.release(ReleaseRef(product, number))
                if theirs.content == content:
                    return theirs
                number += 1
            else:
                self.keep_whole(release)
                return release

    def keep_whole(self, release: Release) -> None:
        """Confirm that a release that was just named is there whole, out of the trash if need be.

        Raises:
            NotFound, IntegrityError: it is not, and not in the trash either.
        """
        ref = ReleaseRef(ProductRef(release.model, release.target), release.number)
        try:
            with ahead(self._stores) as ask:
                is_there = ask(lambda: self._documents.exists(layout.release(ref)))
                self._refuse_incomplete(release.content)
                if is_there():
                    return
        except NotFound:
            pass
        rescue_release(self._stores, self._touches, ref, release.content.engine)
        self._refuse_incomplete(release.content)
        self.release(ref)

    def release(self, ref: ReleaseRef) -> Release:
        """One release, checked.

        Raises:
            NotFound: there is no such release.
            IntegrityError: its document is damaged or lies under another's name.
        """
        name = layout.release(ref)
        try:
            data = self._documents.read(name)
        except NotFound as error:
            if error.name == "registry-missing":
                raise
            self._refuse_retired(ref)
            held = self.numbers(ref.product)
            known = f"there are 1 to {held[-1]}" if held else f"{ref.product} has no release"
            raise NotFound(
                f"release {ref}: not in this registry; {known}",
                hint=f"run `enginectl list --product {ref.product}` to list its releases"
                if held
                else "run `enginectl list` to list products, engines and releases",
                reference="release-missing",
            ) from error
        release, _ = unseal(data, Release, name)
        if release.name != str(ref):
            raise IntegrityError(
                f"{name}: holds release {release.name}",
                hint="run `enginectl verify` to list every damaged file",
                reference="document-misplaced",
            )
        return release

    def releases(self, product: ProductRef) -> list[Release]:
        """Every release of MODEL/TARGET, lowest number first."""
        return [self.release(ReleaseRef(product, number)) for number in self.numbers(product)]

    def products(self) -> list[ProductRef]:
        """Every MODEL/TARGET that has releases, in order of name."""
        found = []
        for model in self._documents.children(layout.RELEASES):
            folder = f"{layout.RELEASES}/{model.removesuffix('/')}"
            for target in self._documents.children(folder):
                try:
                    ref = ProductRef.parse(f"{model}{target.removesuffix('/')}")
                except InvalidInput:
                    continue  # not ours; verification reports it
                if self.numbers(ref):
                    found.append(ref)
        return found

    def numbers(self, product: ProductRef) -> list[int]:
        """The numbers of a product's releases, lowest first; none is read."""
        children = self._documents.children(layout.releases(product))
        found = (layout.number_of(child) for child in children)
        return [number for number in found if number is not None]

    def retired(self, ref: ReleaseRef) -> Retired | None:
        """What is left of a release that was removed; None if it was not."""
        name = layout.retired(ref)
        try:
            return unseal(self._documents.read(name), Retired, name)[0]
        except NotFound:
            return None

    def _refuse_retired(self, ref: ReleaseRef) -> None:
        gone = self.retired(ref)
        if gone is None:
            return
        who = f"{gone.at:%Y-%m-%d} by {gone.actor.name}: {gone.reason}"
        if self._documents.exists(layout.trash(layout.release(ref))):
            raise NotFound(
                f"release {ref}: in the trash since {who}",
                hint=f"bring it back with `enginectl hold {ref} --reason 'needed again'`",
                reference="release-retired",
            )
        raise NotFound(
            f"release {ref}: removed for good on {who}",
            hint=f"run `enginectl list --product {ref.product}` to list its releases, "
            "or build it again",
            reference="release-retired",
        )

    def _retired_numbers(self, product: ProductRef) -> list[int]:
        children = self._documents.children(layout.releases(product))
        found = (layout.number_of(c.replace(layout.RETIRED, ".json")) for c in children)
        return [number for number in found if number is not None]

    def _refuse_incomplete(self, content: ReleaseContent) -> None:
        with ahead(self._stores) as ask:
            named = {
                manifest: ask(
                    partial(self._documents.exists, layout.referrer(content.engine, manifest))
                )
                for manifest in content.evidence
            }
            engine = self._engines.check_engine(content.engine)
            if content.record not in {record.digest for record in engine.records}:
                raise NotFound(
                    f"engine {engine.digest.short}: has no record {content.record}",
                    hint=f"run `enginectl inspect {engine.digest}` to list its records",
                    reference="record-missing",
                )
            for manifest, is_attached in named.items():
                if not is_attached():
                    raise NotFound(
                        f"engine {engine.digest.short}: nothing attached has digest {manifest}",
                        hint="run `enginectl gate` on this engine, then `enginectl release` again",
                        reference="evidence-missing",
                    )
