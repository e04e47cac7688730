"""Many processes that lay engines out through one small cache at the same time.

    python cache_users.py REGISTRY CACHE LIMIT PROCESSES ROUNDS

Prints one line of JSON per process: how often what it laid out was whole.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from engine_registry.backends.node_cache import NodeCache
from engine_registry.digest import Digest
from engine_registry.registry import open_registry, utc_now


def use(url: str, root: str, limit: int, number: int, rounds: int) -> dict[str, int]:
    cache = NodeCache(Path(root), limit, utc_now)
    registry = open_registry(url, near=cache.holding)
    engines = list(registry.engines.all_engines())
    choice = random.Random(number)
    whole = trimmed = 0
    folder = Path(tempfile.mkdtemp(dir=Path(root).parent))
    for turn in range(rounds):
        engine = choice.choice(engines)
        place = folder / str(turn)
        stored = registry.engines.materialise(engine, place)
        files = {layer.title: layer.digest for layer in stored.manifest.layers}
        whole += all(Digest.of((place / t).read_bytes()) == d for t, d in files.items())
        shutil.rmtree(place)
        if turn % 4 == number % 4:
            trimmed += len(cache.trim(limit // 2).evicted)
    return {"whole": whole, "trimmed": trimmed}


def main(url: str, root: str, limit: int, processes: int, rounds: int) -> int:
    Path(root).parent.mkdir(parents=True, exist_ok=True)
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            try:
                answer = use(url, root, limit, number, rounds)
                os.write(1, (json.dumps(answer) + "\n").encode())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return int(any(os.waitpid(child, 0)[1] for child in children))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])))
