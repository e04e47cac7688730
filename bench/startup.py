"""`enginectl --help` answers in under 0.1 s, and `enginectl status` well before `mlflow --help`.

Whole processes, from `exec` to exit, in interleaved repeats on a warm page cache; the first round,
which may write byte code, is not counted. `status` reads a registry with six channels that are
live. The peers are the command lines that a team would use instead: MLflow and DVC.
"""

from __future__ import annotations

import sys

import measure
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import open_registry
from engine_registry.testing import samples


def main() -> None:
    options = measure.arguments(__doc__, repeats=(25, "rounds"))
    repeats = 5 if options.quick else int(options.repeats)
    with measure.bench(__doc__, options.dir) as scratch:
        url = f"file://{scratch / 'registry'}"
        _fill(url)
        enginectl = measure.enginectl()
        env = {"ENGINECTL_REGISTRY": url}

        def case(name: str, *argv: object) -> measure.Case:
            return measure.Case(
                name=name, run=lambda: measure.command(*map(str, argv), cwd=scratch, env=env)
            )

        cases = [
            case("python -c pass", sys.executable, "-c", "pass"),
            case("enginectl --help", enginectl, "--help"),
            case("enginectl rollback --help", enginectl, "rollback", "--help"),
            case("enginectl status", enginectl, "status"),
            case("enginectl status -o json", enginectl, "status", "-o", "json"),
        ]
        for name in ("mlflow", "dvc"):
            if program := measure.peer(name):
                cases.append(case(f"{name} --help", program, "--help"))
        table = measure.Table(
            title="Start-up, whole process",
            peers={"mlflow --help": "mlflow --help", "dvc --help": "dvc --help"},
            unit="ms",
            scale=1000,
            digits=0,
        )
        table.add(measure.interleaved(cases, repeats, warm_up=1))
        table.print()


def _fill(url: str) -> None:
    registry = open_registry(url)
    for target in ("cpu-x86-64-v3", "h100-sxm-80gb", "l40s"):
        product = ProductRef("tiny", target)
        engine = samples.sample_engine(registry, target, product=product)
        release = samples.sample_release(registry, engine, product=product)
        for channel in ("staging", "prod"):
            change = samples.sample_promotion(release)
            samples.sample_event(registry, change, ref=ChannelRef(product, channel))


if __name__ == "__main__":
    main()
