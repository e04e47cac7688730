"""Puts the stand-in of one release somewhere: a directory of this machine, or a container image."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_FACTS = _HERE.parent / "data" / "trtllm" / "facts"
_LIBRARY = _HERE / "toolchain"
TOOLS = ("trtllm-build", "trtllm-refit", "trtllm-serve")

_LAUNCHER = """#!/usr/bin/env python3
# Stand-in for a tool of TensorRT-LLM {version}: a test double. It compiles nothing.
import sys

sys.path.insert(0, {library!r})
from toolchain.{module} import main

sys.exit(main({tool!r}))
"""


@dataclass(frozen=True)
class Installed:
    """A stand-in on this machine.

    Attributes:
        bin_dir: to be put on the PATH.
        examples_dir: for `backend.options.examples-dir`.
    """

    root: Path
    bin_dir: Path
    examples_dir: Path

    def set(self, **settings: Any) -> None:
        """Change settings from now on; see `toolchain.settings`."""
        path = self.root / "lib" / "settings.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def install(root: Path, version: str, **settings: Any) -> Installed:
    """Write the stand-in of `version` below `root`."""
    files = _files(version, settings, str(root / "lib"), str(root / "bin"), str(root / "examples"))
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    # The toolkit's interpreter: this machine's real one, whatever stands before it on the PATH.
    interpreter = root / "bin" / "python3"
    interpreter.unlink(missing_ok=True)
    interpreter.symlink_to(Path(sys.executable).resolve())
    return Installed(root=root, bin_dir=root / "bin", examples_dir=root / "examples")


def image_files(version: str, **settings: Any) -> dict[str, str]:
    """The same for an image, where the release image has its tools: absolute path → content."""
    return _files(
        version,
        settings,
        "/opt/trtllm-stand-in",
        "/usr/local/bin",
        "/app/tensorrt_llm/examples",
    )


def _files(
    version: str, settings: dict[str, Any], library: str, bin_dir: str, examples: str
) -> dict[str, str]:
    def launcher(module: str, tool: str) -> str:
        return _LAUNCHER.format(version=version, library=library, module=module, tool=tool)

    modules = {tool: tool.removeprefix("trtllm-") for tool in TOOLS}
    files = {f"{bin_dir}/{tool}": launcher(module, tool) for tool, module in modules.items()}
    facts = facts_of(version)
    for script in facts["scripts"]:
        files[f"{examples}/{script}"] = launcher("convert", script)
    for path in sorted(_LIBRARY.glob("*.py")):
        files[f"{library}/toolchain/{path.name}"] = path.read_text()
    files[f"{library}/facts.json"] = json.dumps(facts)
    files[f"{library}/settings.json"] = json.dumps({"version": version} | settings)
    return files


def facts_of(version: str) -> dict[str, Any]:
    """Everything the stand-in of one release knows, from the facts files."""
    build = _read("build_flags.json")["versions"]
    row = build.get(version)
    while row is not None and "flags" not in row:
        row = build[row["same_flags_as"]]
    versions = _read("versions.json")
    messages = _read("messages.json")
    release = versions["releases"].get(version.removesuffix(".post1"), {})
    images = [t for t in versions["triton_trtllm_images"] if t["tensorrt_llm"] == version]
    tensorrt = images[0]["tensorrt"] if images else release.get("tensorrt")
    return {
        "version": version,
        # Where nothing is known, a number that no real release has.
        "tensorrt": tensorrt or "10.99.0.1",
        "build_flags": row["flags"] if row else None,
        "scripts": _scripts(version) if row else {},
        "serve": _serve(version),
        "messages": {
            part: {item["id"]: item for item in messages[part]} for part in ("build", "load")
        },
        "qformats": _read("convert_flags.json")["behaviour"]["qformat_to_quant_algo"],
        "sm100_refused": _read("gpus.json")["refused_plugins_on_sm100"]["plugins"],
        "boards": {gpu["nvml_name"]: gpu["sm"] for gpu in _read("gpus.json")["gpus"]},
        "engine_config": _engine_example(version) if row else None,
        "checkpoint_config": json.loads(
            (
                _FACTS / "checkpoint_config_examples/trtllm_checkpoint_llama31_8b_fp16_tp2.json"
            ).read_text()
        )["config"],
        "request_fields": _read("serve_flags.json")["request_fields"],
    }


def _scripts(version: str) -> dict[str, Any]:
    """Path below the examples → flags. The move to `models/core` and the later quantize.py are
    where `convert_flags.json` says."""
    versions = _read("convert_flags.json")["versions"]
    old, new = versions["0.16.0.dev2024121000"], versions["0.19+ (commit c8c6df08)"]
    early = version.startswith(("0.17", "0.18"))
    moved = not (early or version.startswith("0.19"))
    scripts: dict[str, Any] = {}
    for path, flags in old.items():
        name = path.removeprefix("examples/")
        if name == "quantization/quantize.py":
            scripts[name] = flags if early else new[path]
        else:
            # deepseek_v1 and falcon are kept apart from the others there.
            apart = name.startswith(("deepseek", "falcon"))
            folder = f"models/{'contrib' if apart else 'core'}/" if moved else ""
            scripts[f"{folder}{name}"] = flags
    return scripts


def _serve(version: str) -> dict[str, Any]:
    lines = _read("serve_flags.json")["versions"]
    if version.startswith("0."):
        return lines["0.15-0.16"]
    if version.startswith(("1.0", "1.1", "1.2")) or version == "1.3.0rc20":
        return lines["1.0-1.2"]
    return lines["1.3 main (August-September 2026)"]


def _engine_example(version: str) -> dict[str, Any]:
    """The shape of config.json in the release's period."""
    if version.startswith(("0.17", "0.18")):
        name = "llama31_8b_fp16_trtllm_0.17.0_h100.json"
    elif version.startswith(("1.2", "1.3")):
        name = "llama31_8b_int4_awq_trtllm_1.2.1_l40s.json"
    else:
        name = "llama31_8b_fp8_trtllm_1.0.0_h100.json"
    config: dict[str, Any] = json.loads((_FACTS / "engine_config_examples" / name).read_text())[
        "config"
    ]
    return config


def _read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((_FACTS / name).read_text())
    return value
