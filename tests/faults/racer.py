"""Many processes that do the same thing to one registry at the same moment.

    python racer.py ROOT TASK COUNT

Forks COUNT processes, each of which opens the registry, waits for the start and writes its answer
as one line of JSON. A process of its own, so that what is forked has one thread.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from engine_registry.digest import Digest
from engine_registry.errors import ChannelMoved
from engine_registry.events import Held
from engine_registry.record import Actor
from engine_registry.registry import Registry, open_registry
from engine_registry.store import Ownership
from engine_registry.testing.samples import SAMPLE_CHANNEL, SAMPLE_PRODUCT


def try_event(registry: Registry, name: str, decided_on: int) -> int | None:
    """The number of our event; None if somebody else was first."""
    try:
        event, _ = registry.channels.append(
            SAMPLE_CHANNEL,
            decided_on=decided_on,
            change=Held(reason=name),
            actor=Actor(name=name, proved_by="test"),
            at=registry.clock(),
            operation=f"operation of {name}",
        )
    except ChannelMoved as error:
        if int(error.exit_code) != 7:
            raise
        return None
    return event.number


def move_once(registry: Registry, name: str) -> dict[str, object]:
    """All decide on the same event."""
    return {"won": try_event(registry, name, 0)}


def move_until_won(registry: Registry, name: str) -> dict[str, object]:
    """Decide again after each defeat."""
    while True:
        number = try_event(registry, name, registry.channels.state(SAMPLE_CHANNEL).number)
        if number is not None:
            return {"won": number}


def release_and_blob(registry: Registry, name: str) -> dict[str, object]:
    """Put the same blob in, then cut a release of our own."""
    registry.stores.blobs.add_file(Path(registry.url).parent / "shared.bin", Ownership.KEPT)
    template = registry.releases.releases(SAMPLE_PRODUCT)[0].content
    content = template.model_copy(update={"tokenizer": Digest.of(name.encode())})
    release = registry.releases.create_release(
        SAMPLE_PRODUCT, content, Actor(name=name, proved_by="test"), registry.clock()
    )
    return {"number": release.number}


def found(registry: Registry, name: str) -> dict[str, object]:
    """Found the registry, or find it founded."""
    registry.stores.documents.create(f"records/{name}.json", name.encode())
    return {"created_at": registry.info().created_at.isoformat()}


TASKS = {task.__name__: task for task in (move_once, move_until_won, release_and_blob, found)}


def run(root: str, task: str, name: str, start: int) -> int:
    """One process: its exit status."""
    try:
        opened = open_registry(root)
        os.read(start, 1)  # returns when the parent closes its end, for all at once
        answer = json.dumps(TASKS[task](opened, name)) + "\n"
        os.write(1, answer.encode())
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(root: str, task: str, count: int) -> int:
    """Let `count` processes go together; 0 if all of them ended well."""
    start, go = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(go)
            os._exit(run(root, task, f"racer-{number:02d}", start))
        children.append(child)
    os.close(go)
    return int(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
