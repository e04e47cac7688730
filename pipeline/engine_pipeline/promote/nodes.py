"""Does a release load on the nodes that serve a channel: the rules of `compat.fit`, node by node.

The same rules and the same files as `enginectl check` and `enginectl deploy`. What a policy accepts
untested (another board of the same capability, an older driver) is accepted here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.capacity.verdict import bytes_to_load
from engine_pipeline.compat.fit import accepting, decide_fit, sum_up
from engine_pipeline.promote.findings import Finding
from engine_pipeline.promote.release import lock_of
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.digest import Digest
    from engine_registry.record import Record, Release
    from engine_registry.registry import Registry


def fit_of_nodes(
    desk: Desk,
    release: Release,
    policy: ChannelPolicy | None,
    *,
    must_know: bool,
    records: Callable[[], Sequence[Record]],
) -> tuple[Finding, ...]:
    """One finding per node that the policy names, called `fit`; none if it names none.

    Args:
        desk: registry, and who reads descriptions of nodes.
        release: what shall load there.
        policy: the channel's rules; None where nobody wrote any.
        must_know: a description that cannot be read is an error. Otherwise it is said and passed
            over: a mistake in a file must not keep anybody from rolling back.
        records: gives those of the release's engine.

    Raises:
        NotFound, InvalidInput: a description is not there or not readable.
    """
    if policy is None or not policy.nodes:
        return ()
    content = release.content
    needed = _memory_by(desk.registry, records(), content.record)
    found = []
    for name in policy.nodes:
        try:
            # What is served there now makes room for it.
            node = desk.node(name).at_rest
        except (NotFound, InvalidInput) as error:
            if must_know:
                raise
            found.append(Finding(rule="fit", holds=True, says=f"not asked: {error.message}"))
            continue
        findings = decide_fit(
            content.platform, node, policy=accepting(policy.accepts), needed_bytes=needed
        )
        found.append(sum_up(node, findings))
    return tuple(found)


def memory_to_load(registry: Registry, engine: Digest, record: Digest) -> int | None:
    """Memory of one rank; None where the engine's lock says nothing of the model's shape."""
    return _memory_by(registry, registry.engines.records(engine), record)


def _memory_by(registry: Registry, records: Sequence[Record], record: Digest) -> int | None:
    found = next((r for r in records if r.digest == record), None)
    if found is None:
        return None
    try:
        return bytes_to_load(lock_of(registry, found))
    except ValidationError:
        # A lock of another program version: no reason to refuse an engine that was served.
        return None
