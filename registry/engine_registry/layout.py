"""Where each thing lies in a store: pure names, the same for a directory and a bucket.

    registry.json                                    what this is, format version (create-once)
    blobs/sha256/<hex>                               every byte: engine files, manifests, reports
    records/<2 hex>/<engine hex>/<build key hex>.json    facts of one build of one engine
    keys/<2 hex>/<build key hex>/<engine hex>.json   build key -> engine
    referrers/<2 hex>/<subject hex>/<referrer hex>.json  what is attached to an engine
    releases/<model>/<target>/<number>.json          numbered from 1 within MODEL/TARGET
    channels/<model>/<target>/<channel>/events/<number>.json
    channels/<model>/<target>/<channel>/head.json    cached fold of the events: a pointer
    sets/<set>.json                                  the fate of releases that move together
    releases/<model>/<target>/<number>.retired.json  a release that garbage collection removed
    holds/<model>/<target>/<number>.json             keeps a release from collection: a pointer
    touched/<day>/<hour and minute>/<...>.json       engines recorded, judged, reused or removed
    trash/<any of the above>                         discarded, not yet purged
    cache/                                           derived; may be deleted at any time
    cache/rollback/<model>/<target>/<channel>.json   what a rollback will look at: a pointer

Numbers are ten digits wide, so that a listing is in order.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef

REGISTRY = "registry.json"
BLOBS = "blobs/sha256"
CHANNELS = "channels"
RELEASES = "releases"
RECORDS = "records"
KEYS = "keys"
REFERRERS = "referrers"
SETS = "sets"
HOLDS = "holds"
TOUCHED = "touched"
TRASH = "trash"
CACHE = "cache"
RETIRED = ".retired.json"
_WIDTH = 10
# Folders of names that only a registry has: where one lies, `registry.json` got lost or is to come.
_TELLING = frozenset({CHANNELS, RECORDS, REFERRERS, RELEASES})


def hint_without_info(held: Iterable[str], place: str, copy: str) -> str:
    """What to do where a registry's folders lie without `registry.json`; "" where none of them do.

    Args:
        held: names in the directory, or of the objects, that were found.
        place: where they lie.
        copy: the command that copies one file there.
    """
    if _TELLING.isdisjoint(name.split("/")[0] for name in held):
        return ""
    return (
        f"only {REGISTRY} is missing: finish the copy, then `{copy} ORIGINAL/{REGISTRY} "
        f"{quote(place.rstrip('/') + '/')}`, ORIGINAL being what it was copied from"
    )


def blob(digest: Digest) -> str:
    """The name of a blob, the same as in an OCI image layout."""
    return f"{BLOBS}/{digest.hex}"


def records(engine: Digest) -> str:
    """The folder of an engine's records."""
    return f"{RECORDS}/{engine.hex[:2]}/{engine.hex}"


def record(engine: Digest, build_key: Digest) -> str:
    """The name of the record of one build."""
    return f"{records(engine)}/{build_key.hex}.json"


def keys(build_key: Digest) -> str:
    """The folder that lists the engines built from one key."""
    return f"{KEYS}/{build_key.hex[:2]}/{build_key.hex}"


def key(build_key: Digest, engine: Digest) -> str:
    """The name of one build key's link to one engine."""
    return f"{keys(build_key)}/{engine.hex}.json"


def referrers(subject: Digest) -> str:
    """The folder that lists what is attached to a manifest."""
    return f"{REFERRERS}/{subject.hex[:2]}/{subject.hex}"


def referrer(subject: Digest, manifest: Digest) -> str:
    """The name of the link from a subject to one attached manifest."""
    return f"{referrers(subject)}/{manifest.hex}.json"


def releases(product: ProductRef) -> str:
    """The folder of the releases of MODEL/TARGET."""
    return f"{RELEASES}/{product.model}/{product.target}"


def release(ref: ReleaseRef) -> str:
    """The name of one release."""
    return f"{releases(ref.product)}/{ref.number:0{_WIDTH}d}.json"


def retired(ref: ReleaseRef) -> str:
    """The name of what is left of a release that was removed."""
    return release(ref).removesuffix(".json") + RETIRED


def hold(ref: ReleaseRef) -> str:
    """The name of the hold on a release."""
    return f"{HOLDS}/{ref.product.model}/{ref.product.target}/{ref.number:0{_WIDTH}d}.json"


def release_set(name: str) -> str:
    """The name of the decision on a set of releases."""
    return f"{SETS}/{name}.json"


def trash(name: str) -> str:
    """Where a discarded name lies."""
    return f"{TRASH}/{name}"


def channel(ref: ChannelRef) -> str:
    """The folder of one channel."""
    return f"{CHANNELS}/{ref.product.model}/{ref.product.target}/{ref.channel}"


def events(ref: ChannelRef) -> str:
    """The folder of a channel's event log."""
    return f"{channel(ref)}/events"


def event(ref: ChannelRef, number: int) -> str:
    """The name of event `number` (from 1) of a channel."""
    return f"{events(ref)}/{number:0{_WIDTH}d}.json"


def head(ref: ChannelRef) -> str:
    """The name of a channel's pointer."""
    return f"{channel(ref)}/head.json"


def note(ref: ChannelRef) -> str:
    """The name of what is noted for the next rollback of a channel."""
    return f"{CACHE}/rollback/{ref.product.model}/{ref.product.target}/{ref.channel}.json"


def number_of(child: str) -> int | None:
    """The number in the file name of a release or an event; None for a foreign file."""
    stem = child.removesuffix(".json")
    return int(stem) if child.endswith(".json") and stem.isdigit() and len(stem) == _WIDTH else None


def digest_of(child: str) -> Digest | None:
    """The digest in the name of a folder or document named by one; None for a foreign file."""
    try:
        return Digest(child.removesuffix("/").removesuffix(".json"))
    except InvalidInput:
        return None
