"""The shape of the code: who may import whom, where each library lives, how big is big."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"engine_registry": ROOT / "registry", "engine_pipeline": ROOT / "pipeline"}
MAX_MODULE_LINES = 330
MAX_FUNCTION_LINES = 80

# Third-party library: the places that may import it. Everything else goes through them.
HOMES = {
    "click": ("engine_pipeline.cli",),
    "docker": (
        "engine_pipeline.docker_engine",
        "engine_pipeline.runners.docker",
        "engine_pipeline.sources.images",
    ),
    "requests": ("engine_registry.oci", "engine_pipeline.docker_engine"),
    "pynvml": ("engine_pipeline.nvml",),
    "boto3": ("engine_registry.backends.s3",),
    "botocore": ("engine_registry.backends.s3",),
    "rich": ("engine_pipeline.cli",),
    "ruamel": ("engine_pipeline.yaml_reader",),
    "huggingface_hub": ("engine_pipeline.sources.hub",),
    "aiohttp": ("engine_pipeline.gates", "engine_pipeline.tracking.http"),
    "jsonschema": ("engine_pipeline.gates",),
    "gguf": ("engine_pipeline.backends.llama_cpp",),
    "libgguf": ("engine_pipeline.backends.llama_cpp",),
    "safetensors": ("engine_pipeline.backends.llama_cpp",),
    "xllamacpp": ("engine_pipeline.backends.llama_cpp",),
    "numpy": ("engine_pipeline.backends.llama_cpp",),
    "cryptography": ("engine_pipeline.trust.ed25519", "engine_pipeline.trust.rs256"),
    "sigstore": ("engine_pipeline.trust.keyless",),
}

# Modules that take values and return values: no files, network, clock or environment.
PURE = {
    "engine_pipeline.bisect.inputs",
    "engine_pipeline.bisect.search",
    "engine_registry.cache_plan",
    "engine_registry.index_query",
    *(
        f"engine_pipeline.gates.{name}"
        for name in ("annotations", "differences", "junit", "visible", "word_diff", "words")
    ),
    *(
        f"engine_pipeline.gates.html.{name}"
        for name in ("axis", "cases", "parity", "plots", "ratios", "table", "text")
    ),
    "engine_registry.digest",
    "engine_registry.refs",
    "engine_registry.manifest",
    "engine_registry.record",
    "engine_registry.events",
    "engine_registry.layout",
    "engine_registry.errors",
    "engine_registry.documents",
    "engine_registry.archive_header",
    "engine_registry.transfer_plan",
    "engine_registry.oci.challenge",
    "engine_registry.oci.package",
    "engine_registry.oci.reference",
    "engine_registry.attestation",
    "engine_registry.dsse",
    "engine_pipeline.spec.model",
    "engine_pipeline.spec.lock",
    "engine_pipeline.build.plan",
    "engine_pipeline.gates.outcome",
    "engine_pipeline.gates.policy",
    "engine_pipeline.gates.load",
    "engine_pipeline.gates.paired",
    "engine_pipeline.gates.paired_bars",
    "engine_pipeline.gates.paired_result",
    "engine_pipeline.gates.paired_stats",
    "engine_pipeline.gates.calibration",
    "engine_pipeline.gates.markdown_paired",
    "engine_pipeline.gates.check",
    "engine_pipeline.gates.grown",
    "engine_pipeline.gates.tool_call",
    "engine_pipeline.gates.number",
    "engine_pipeline.gates.choice",
    "engine_pipeline.gates.check_kinds",
    "engine_pipeline.gates.check_code",
    "engine_pipeline.gates.chat",
    "engine_pipeline.gates.asking",
    "engine_pipeline.gates.dialect",
    "engine_pipeline.gates.served_by",
    "engine_pipeline.gates.judge_model",
    "engine_pipeline.gates.embedding_model",
    "engine_pipeline.gates.similarity",
    "engine_pipeline.gates.standing",
    "engine_pipeline.gates.prefix",
    "engine_pipeline.gates.case_result",
    "engine_pipeline.gates.suite_jsonl",
    "engine_pipeline.gates.yaml_text",
    "engine_pipeline.gates.html.template",
    "engine_pipeline.promote.gate_rule",
    "engine_pipeline.gates.report",
    "engine_pipeline.gates.suite",
    "engine_pipeline.gates.stats",
    "engine_pipeline.gates.latencies",
    "engine_pipeline.gates.judge",
    "engine_pipeline.gates.speed",
    "engine_pipeline.gates.markdown",
    "engine_pipeline.gates.reply",
    "engine_pipeline.gates.sse",
    "engine_pipeline.gates.degenerate",
    "engine_pipeline.gates.parity",
    "engine_pipeline.gates.parity_answer",
    "engine_pipeline.gates.parity_bars",
    "engine_pipeline.gates.parity_judge",
    "engine_pipeline.gates.parity_result",
    "engine_pipeline.gates.parity_stats",
    "engine_pipeline.gates.markdown_parity",
    "engine_pipeline.gates.template",
    *(
        f"engine_pipeline.gates.{name}"
        for name in (
            "lane_bars",
            "lane_judge",
            "lane_metrics",
            "lane_result",
            "lane_words",
            "measured",
        )
    ),
    "engine_pipeline.gates.html.lanes",
    *(
        f"engine_pipeline.workload.{name}"
        for name in ("arrival", "capture", "lengths", "log_line", "model", "requests")
    ),
    "engine_pipeline.promote.findings",
    "engine_pipeline.nvml.inventory",
    "engine_pipeline.nvml.rules",
    "engine_pipeline.nvml.use",
    "engine_pipeline.nvml.visible",
    "engine_pipeline.nvml.node",
    "engine_pipeline.runners.docker.work",
    "engine_pipeline.runners.docker.ending",
    "engine_pipeline.docker_engine.failures",
    "engine_pipeline.backends.trtllm.build_flags",
    "engine_pipeline.backends.trtllm.builder",
    "engine_pipeline.backends.trtllm.compare",
    "engine_pipeline.backends.trtllm.convert",
    "engine_pipeline.backends.trtllm.engine_config",
    "engine_pipeline.backends.trtllm.failures",
    "engine_pipeline.backends.trtllm.families",
    "engine_pipeline.backends.trtllm.model_fit",
    "engine_pipeline.backends.trtllm.options",
    "engine_pipeline.backends.trtllm.plan_sizes",
    "engine_pipeline.backends.trtllm.recipes",
    "engine_pipeline.backends.trtllm.serve",
    "engine_pipeline.backends.trtllm.settings",
    "engine_pipeline.backends.trtllm.sizing",
    "engine_pipeline.backends.trtllm.steps",
    "engine_pipeline.backends.checkpoint.compare",
    "engine_pipeline.backends.checkpoint.options",
    "engine_pipeline.backends.checkpoint.quantisation",
    "engine_pipeline.backends.checkpoint.runtime_file",
    "engine_pipeline.backends.checkpoint.schemes",
    "engine_pipeline.backends.checkpoint.serve",
    "engine_pipeline.backends.checkpoint.serving_yaml",
    "engine_pipeline.backends.checkpoint.sizing",
    "engine_pipeline.backends.checkpoint.steps",
    "engine_pipeline.backends.checkpoint.words",
    "engine_pipeline.compat.fit",
    "engine_pipeline.compat.node",
    "engine_pipeline.compat.releases",
    "engine_pipeline.capacity.estimate",
    "engine_pipeline.capacity.parameters",
    "engine_pipeline.capacity.verdict",
    "engine_pipeline.build.host",
    "engine_pipeline.deploy.rules",
    "engine_pipeline.spec.compare",
    "engine_pipeline.spec.hardware",
    "engine_pipeline.promote.policy",
    "engine_pipeline.promote.rules",
    "engine_pipeline.tracking.facts",
    "engine_pipeline.tracking.due",
    "engine_pipeline.tracking.mlflow.gate_metrics",
    "engine_pipeline.tracking.mlflow.names",
    "engine_pipeline.notify.settings",
    "engine_pipeline.notify.sign",
    "engine_pipeline.promote.window",
    "engine_pipeline.trust.bom",
    "engine_pipeline.trust.bundle",
    "engine_pipeline.trust.policy",
    "engine_pipeline.trust.rules",
    "engine_pipeline.trust.standing",
    "engine_pipeline.trust.statements",
}
IMPURE = {"os", "io", "shutil", "socket", "subprocess", "tempfile", "time", "urllib", "asyncio"}


def modules() -> dict[str, Path]:
    found = {}
    for package, root in SOURCES.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imports(name: str, *, at_run_time_only: bool = False) -> set[str]:
    """Every module that `name` imports; with the flag, without `if TYPE_CHECKING` blocks."""
    skipped: set[ast.AST] = set()
    if at_run_time_only:
        for node in ast.walk(TREES[name]):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                for statement in node.body:
                    skipped.update(ast.walk(statement))
    found: set[str] = set()
    for node in ast.walk(TREES[name]):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(
                f"{node.module}.{a.name}"
                for a in node.names
                if f"{node.module}.{a.name}" in MODULES
            )
    return found


def test_the_registry_never_imports_the_pipeline():
    guilty = {
        f"{name} imports {target}"
        for name in MODULES
        if name.startswith("engine_registry")
        for target in imports(name)
        if target.split(".")[0] == "engine_pipeline"
    }
    assert not guilty


@pytest.mark.parametrize("library", sorted(HOMES))
def test_each_third_party_library_has_one_home(library):
    guilty = {
        name
        for name in MODULES
        if any(target.split(".")[0] == library for target in imports(name))
        and not name.startswith(HOMES[library])
    }
    assert not guilty, f"{library} belongs to {HOMES[library]}"


def test_only_the_command_line_imports_the_command_line():
    guilty = {
        f"{name} imports {target}"
        for name in MODULES
        if not name.startswith("engine_pipeline.cli")
        for target in imports(name)
        if target.startswith("engine_pipeline.cli")
    }
    assert not guilty


def test_only_wiring_picks_a_backend_a_runner_or_a_source():
    adapters = (
        "engine_pipeline.backends.llama_cpp",
        "engine_pipeline.backends.trtllm",
        "engine_pipeline.backends.checkpoint",
        "engine_pipeline.runners.local",
        "engine_pipeline.runners.docker",
        "engine_pipeline.sources.hub",
        "engine_pipeline.sources.images",
        "engine_pipeline.sources.package",
        "engine_pipeline.sources.local",
        "engine_registry.backends",
        "engine_pipeline.tracking.mlflow",
        "engine_pipeline.notify.webhook",
    )
    allowed = (
        "engine_pipeline.cli.wiring",
        "engine_pipeline.cli.commands.doctor",
        "engine_pipeline.sources.schemes",  # which adapter serves which kind of source URI
        "engine_registry.urls",
        "engine_registry.testing",
    )
    guilty = {
        f"{name} imports {target}"
        for name in MODULES
        for target in imports(name, at_run_time_only=True)
        for adapter in adapters
        if target.startswith(adapter)
        and not name.startswith(adapter)
        and not name.startswith(allowed)
    }
    assert not guilty


@pytest.mark.parametrize("name", sorted(PURE))
def test_a_pure_module_touches_no_file_network_clock_or_environment(name):
    assert name in MODULES
    assert not imports(name, at_run_time_only=True) & IMPURE
    calls = {ast.unparse(node.func) for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)}
    assert not calls & {"open", "datetime.now", "Path", "print", "input"}


def test_modules_and_functions_stay_small():
    long = [
        f"{path.relative_to(ROOT)}: {len(path.read_text().splitlines())} lines"
        for path in MODULES.values()
        if len(path.read_text().splitlines()) > MAX_MODULE_LINES
    ]
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{name}.{node.name}: {lines} lines")
    assert not long


def test_ports_have_at_most_five_methods():
    fat = [
        f"{name}.{node.name}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base) == "Protocol" for base in node.bases)
        and sum(isinstance(item, ast.FunctionDef) for item in node.body) > 5
    ]
    assert not fat


def test_no_module_has_a_name_that_says_nothing():
    empty = {"utils", "util", "common", "misc", "core", "manager", "helper", "helpers"}
    assert not {name for name in MODULES if set(name.split(".")) & empty}


def chain_to(start: str, wanted: str) -> list[str]:
    """The shortest import chain from `start` to a module of `wanted`, for the failure message."""
    queue, came_from = deque([start]), {start: ""}
    while queue:
        name = queue.popleft()
        for target in imports(name, at_run_time_only=True):
            if target.split(".")[0] == wanted:
                chain = [target, name]
                while came_from[chain[-1]]:
                    chain.append(came_from[chain[-1]])
                return chain[::-1]
            if target in MODULES and target not in came_from:
                came_from[target] = name
                queue.append(target)
    return []


@pytest.mark.parametrize("command", [["--help"], ["--version"]])
def test_help_imports_no_heavy_library(command):
    program = (
        "import sys\n"
        "from engine_pipeline.cli.app import run\n"
        f"run({command!r})\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(str(root) for root in SOURCES.values())},
    )
    loaded = set(done.stderr.split())
    heavy = loaded & {*HOMES, "pydantic", "docker", "boto3", "mlflow"} - {"click"}
    assert not heavy, {library: chain_to("engine_pipeline.cli.app", library) for library in heavy}
