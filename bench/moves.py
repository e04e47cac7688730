"""Rolling back takes under 0.3 s as a whole process, however many engines are recorded.

The command lines that an on-call engineer types, `enginectl rollback` and `enginectl promote`, from
`exec` to exit, and the same acts inside a process that is up already, with 10, 1,000 and 100,000
engines in the registry. Every move is a real one: policy, suite and report are read and checked,
the target's bytes are known to be whole, an event is appended and durable. The channel's log holds
300 events, more than are re-read before a move, and every promotion is judged by a suite of 48
cases.

The peer is MLflow's model registry on its own SQLite store: `set_registered_model_alias`, which
moves an alias and checks nothing, with as many versions of one model recorded.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import measure
import project
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import lift_hold
from engine_registry.record import Actor
from engine_registry.registry import open_registry, utc_now
from fill import fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZES = (10, 1_000, 100_000)
ROLLBACK, PROMOTE, ALIAS = "enginectl rollback", "enginectl promote", "mlflow alias set"


def main() -> None:
    options = measure.arguments(__doc__, repeats=(20, "whole processes of each kind and size"))
    sizes = (10, 100) if options.quick else SIZES
    repeats, acts = (3, 20) if options.quick else (options.repeats, 400)
    with measure.bench(__doc__, options.dir) as scratch:
        root = scratch / "registry"
        here = project.prepare(scratch, root)
        mlflow = _Mlflow.there_is(scratch)
        held = project.ENGINES
        for size in sizes:
            fill(root, scratch / "fill", held, size)
            held = max(held, size)
            if mlflow:
                mlflow.fill(size)
            _whole_processes(here, mlflow, size, repeats)
            _inside(here, mlflow, size, acts)


def _whole_processes(
    here: project.Project, mlflow: _Mlflow | None, size: int, repeats: int
) -> None:
    enginectl = measure.enginectl()
    env = here.env

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: measure.command(enginectl, *arguments, cwd=here.folder, env=env)

    accepted = ("--override", "bad", "--reason", "bench")
    cases = [
        measure.Case(name="python -c pass", run=partial(measure.command, sys.executable, "-c", "")),
        # In turn: the second release goes live, and the first comes back. The rollback marks the
        # second one bad and sets a hold; both are lifted for the next turn.
        measure.Case(
            name=PROMOTE,
            before=run("hold", str(here.channel), "--lift", "--reason", "bench"),
            run=run("promote", here.second.name, "--to", here.channel.channel, *accepted),
        ),
        measure.Case(name=ROLLBACK, run=run("rollback", str(here.channel), "--reason", "bench")),
        measure.Case(name="enginectl status", run=run("status", str(here.channel.product))),
    ]
    if mlflow:
        cases.append(measure.Case(name=ALIAS, run=mlflow.set_alias_whole))
    table = measure.Table(
        title=f"{size:,} engines recorded, whole process",
        peers={ALIAS: ALIAS},
        unit="ms",
        scale=1000,
        digits=0,
    )
    table.add(measure.interleaved(cases, repeats, warm_up=1))
    table.print()


def _inside(here: project.Project, mlflow: _Mlflow | None, size: int, acts: int) -> None:
    samples: dict[str, list[float]] = {"promote": [], "roll_back": []}
    desk = Desk(
        registry=open_registry(here.url),
        actor=Actor(name="bench", proved_by="claimed"),
        clock=utc_now,
    )
    go = partial(
        promote,
        desk,
        here.second,
        here.channel,
        policy=here.policy,
        wanted=here.wanted,
        reason="bench",
        overrides=("bad",),
    )
    back = partial(roll_back, desk, here.channel, reason="bench")
    for number in range(acts + 10):
        lift_hold(desk, here.channel, reason="bench")
        for name, act in (("promote", go), ("roll_back", back)):
            began = time.perf_counter()
            act()
            if number >= 10:
                samples[name].append(time.perf_counter() - began)
    if mlflow:
        samples[ALIAS] = mlflow.set_aliases(acts)
    print(f"\n{size:,} engines recorded, inside a process: p50 and p99, ms\n")
    print("| | n | p50 | p99 |\n| - | -: | -: | -: |")
    for name, taken in samples.items():
        p50, p99 = (measure.percentile(taken, share) * 1000 for share in (0.5, 0.99))
        print(f"| {name} | {len(taken)} | {p50:.1f} | {p99:.1f} |")


class _Mlflow:
    """MLflow's model registry in a SQLite file, driven by the peers' own Python."""

    def __init__(self, python: Path, scratch: Path) -> None:
        self._python = python
        self._env = {"BENCH_URI": f"sqlite:///{scratch / 'mlflow.db'}"}
        self._turn = 0

    @classmethod
    def there_is(cls, scratch: Path) -> _Mlflow | None:
        program = measure.peer("mlflow")
        return cls(program.parent / "python", scratch) if program else None

    def fill(self, count: int) -> None:
        """Versions are written into MLflow's own table: creating each one takes 20 ms."""
        self._python_runs(
            "import os, sqlite3, time, mlflow\n"
            "client = mlflow.MlflowClient(registry_uri=os.environ['BENCH_URI'])\n"
            "if not client.search_registered_models():\n"
            "    client.create_registered_model('bench')\n"
            "    client.create_model_version('bench', 'file:///bench/1')\n"
            "    client.create_model_version('bench', 'file:///bench/2')\n"
            "base = sqlite3.connect(os.environ['BENCH_URI'].removeprefix('sqlite:///'))\n"
            "columns = [row[1] for row in base.execute('pragma table_info(model_versions)')]\n"
            "first = list(base.execute('select * from model_versions').fetchone())\n"
            "at = columns.index('version')\n"
            "held = base.execute('select max(version) from model_versions').fetchone()[0]\n"
            f"rows = ([*first[:at], n, *first[at + 1:]] for n in range(held + 1, {count} + 1))\n"
            "places = ','.join('?' * len(columns))\n"
            "base.executemany(f'insert into model_versions values ({places})', rows)\n"
            "base.commit()\n"
            f"assert client.get_model_version('bench', '{count}').source\n"
        )

    def set_alias_whole(self) -> None:
        self._turn = 3 - self._turn if self._turn else 1
        self._python_runs(
            "import os; from mlflow import MlflowClient\n"
            "client = MlflowClient(registry_uri=os.environ['BENCH_URI'])\n"
            f"client.set_registered_model_alias('bench', 'prod', '{self._turn}')\n"
        )

    def set_aliases(self, count: int) -> list[float]:
        text = self._python_runs(
            "import json, os, time; from mlflow import MlflowClient\n"
            "client = MlflowClient(registry_uri=os.environ['BENCH_URI'])\n"
            "taken = []\n"
            f"for number in range({count} + 10):\n"
            "    began = time.perf_counter()\n"
            "    client.set_registered_model_alias('bench', 'prod', str(1 + number % 2))\n"
            "    taken.append(time.perf_counter() - began)\n"
            "print(json.dumps(taken[10:]))\n"
        )
        return [float(value) for value in json.loads(text.splitlines()[-1])]

    def _python_runs(self, code: str) -> str:
        return measure.command(self._python, "-c", code, env=self._env)


if __name__ == "__main__":
    main()
