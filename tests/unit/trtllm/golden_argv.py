"""The exact commands for every release × precision × family, as text that people review.

`python -m tests.unit.trtllm.golden_argv` writes `tests/data/trtllm/argv/*.txt` again. What it
changes there is a change of what runs on a GPU: read the difference before you commit it. Releases
that get the same commands share a file, named after the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_pipeline.backends.trtllm.build_flags import build_versions
from engine_pipeline.build.plan import Step
from engine_registry.errors import EngineCIError
from tests.unit.trtllm.models import CALIBRATION, FAMILIES, lock, spec

FOLDER = Path(__file__).parents[2] / "data" / "trtllm" / "argv"
VERSIONS = build_versions()
_WIDTH = 100
_GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4}}


@dataclass(frozen=True)
class Case:
    """One precision of one family on one board."""

    family: str
    recipe: str
    weights: str
    cache: str
    sku: str
    tensor: int = 1
    pipeline: int = 1
    options: tuple[tuple[str, object], ...] = ()

    @property
    def title(self) -> str:
        ranks = f"tp{self.tensor} pp{self.pipeline}"
        options = "".join(f" {name}={value}" for name, value in self.options)
        return f"{self.recipe}, KV {self.cache}, {self.sku}, {ranks}{options}"

    @property
    def calibrates(self) -> bool:
        return self.recipe in {
            "fp8",
            "int8_sq",
            "int4_awq",
            "w4a8_awq",
            "nvfp4",
        } or self.cache in ("fp8", "int8")


_PRECISIONS = (
    ("fp16", "fp16", "fp16", "a100-sxm-80gb"),
    ("bf16", "bf16", "bf16", "a100-sxm-80gb"),
    ("fp8", "fp8", "fp8", "h100-sxm-80gb"),
    ("fp8", "fp8", "bf16", "h100-sxm-80gb"),
    ("int8_wo", "int8", "fp16", "a100-sxm-80gb"),
    ("int8_sq", "int8", "fp16", "a100-sxm-80gb"),
    ("int8_sq", "int8", "int8", "a100-sxm-80gb"),
    ("int4_wo", "int4", "fp16", "a100-sxm-80gb"),
    ("int4_awq", "int4", "fp16", "l40s-48gb"),
    ("int4_gptq", "int4", "fp16", "rtx-4090-24gb"),
    ("w4a8_awq", "int4", "fp16", "h100-sxm-80gb"),
    ("nvfp4", "nvfp4", "bf16", "b200-sxm-180gb"),
)


def cases() -> tuple[Case, ...]:
    """Every family at every precision, and ranks and options on the first."""
    found = []
    for family in FAMILIES:
        for recipe, weights, cache, sku in _PRECISIONS:
            tensor = 2 if family == "mixtral" else 1
            found.append(Case(family, recipe, weights, cache, sku, tensor))
    a100, h100 = "a100-sxm-80gb", "h100-sxm-80gb"
    found += [
        Case("llama", "fp16", "fp16", "int8", a100),
        Case("llama", "fp16", "fp16", "fp16", a100, 2, 2),
        Case("llama", "fp8", "fp8", "fp8", h100, 4, 1),
        Case("llama", "fp16", "fp16", "fp16", h100, options=(("strip-plan", True),)),
        Case("llama", "fp16", "fp16", "fp16", h100, options=(("fast-build", True),)),
        Case("mixtral", "fp16", "fp16", "fp16", a100, 2, options=(("moe-expert-parallel", 2),)),
    ]
    return tuple(found)


def steps_of(case: Case, version: str) -> tuple[Step, ...]:
    """The plan's steps; raises what the backend refuses it with."""
    config = FAMILIES[case.family] | (_GPTQ if case.recipe == "int4_gptq" else {})
    wanted = spec(
        model__name=case.family,
        target__sku=case.sku,
        target__parallelism={"tensor": case.tensor, "pipeline": case.pipeline},
        precision={"weights": case.weights, "kv_cache": case.cache, "recipe": case.recipe},
        backend__version=version,
        backend__options=dict(case.options),
        **({"calibration": CALIBRATION} if case.calibrates else {}),
    )
    backend = TrtllmBackend()
    backend.check(wanted)
    return backend.plan(lock(wanted, config))


def golden_files() -> dict[str, str]:
    """File name → content, for all releases."""
    groups: dict[str, list[str]] = {}
    for version in VERSIONS:
        groups.setdefault(text_of(version), []).append(version)
    return {
        f"{versions[0]}.txt": f"Commands for TensorRT-LLM {', '.join(versions)}\n{text}"
        for text, versions in groups.items()
    }


def text_of(version: str) -> str:
    """Everything that is run for one release; equal builds are written once."""
    out: list[str] = []
    builds: dict[str, list[str]] = {}
    for case in cases():
        try:
            steps = steps_of(case, version)
        except EngineCIError as error:
            out.append(f"\n== {case.family}: {case.title}\nrefused: {error.name}")
            continue
        out.append(f"\n== {case.family}: {case.title}")
        for step in steps:
            if step.name in ("checkpoint", "refit"):
                out.append(f"{step.name}:\n" + wrap(step.argv))
            elif step.name == "compile":
                builds.setdefault(wrap(step.argv), []).append(f"{case.family}: {case.title}")
    out.append("\n\n# Compilation depends on precision, board and ranks, not on the family.")
    for command, users in builds.items():
        out.append("\n== compile for\n" + "\n".join(f"   {user}" for user in users))
        out.append(command)
    return "\n".join(out) + "\n"


def wrap(argv: tuple[str, ...]) -> str:
    """The command with as many arguments in a line as fit; a flag and its value stay together."""
    lines = ["   "]
    for part in _pairs(argv):
        if len(lines[-1]) + len(part) + 1 > _WIDTH:
            lines.append("       ")
        lines[-1] += f" {part}"
    return "\n".join(lines)


def _pairs(argv: tuple[str, ...]) -> Iterator[str]:
    """The program with its script, then each flag with what follows it."""
    piece = [argv[0]]
    for word in argv[1:]:
        if word.startswith("--"):
            yield " ".join(piece)
            piece = []
        piece.append(word)
    yield " ".join(piece)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, content in golden_files().items():
        (FOLDER / name).write_text(content)
