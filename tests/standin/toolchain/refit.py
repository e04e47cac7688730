"""`trtllm-refit`: puts a checkpoint's weights into stripped plans, and copies config.json."""

import json
import shutil
from pathlib import Path

from .arguments import parser_for
from .plan_file import read_plan, write_plan
from .settings import facts, fail_as_told, say, settings, sm_of, visible_gpus
from .weights import read_safetensors

# Source: section 4 of the contract the facts come from.
_FLAGS = {
    "--engine_dir": {"type": "str"},
    "--checkpoint_dir": {"type": "str"},
    "--output_dir": {"type": "str"},
    "--log_level": {"type": "str", "default": "info"},
}


def main(tool):
    known, chosen = facts(), settings()
    arguments = parser_for(tool, _FLAGS).parse_args()
    fail_as_told(tool, known, chosen)
    folders = [Path(arguments.engine_dir or ""), Path(arguments.checkpoint_dir or "")]
    for folder in folders:
        if not str(folder) or not (folder / "config.json").is_file():
            raise RuntimeError(f"{folder} is not a valid directory")
    if arguments.output_dir is None:
        raise RuntimeError("output_dir is required")
    if visible_gpus(chosen) == 0:
        raise RuntimeError("no CUDA-capable device is detected")
    engine_dir, checkpoint = folders
    engine = json.loads((engine_dir / "config.json").read_text())
    config = json.loads((checkpoint / "config.json").read_text())
    if engine["pretrained_config"]["architecture"] != config["architecture"]:
        raise RuntimeError("engine and checkpoint are of different architectures")
    if not engine["build_config"]["use_strip_plan"]:
        raise RuntimeError("the engine cannot be refitted: it was not built with --strip_plan")
    output = Path(arguments.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    for rank in range(config["mapping"]["world_size"]):
        version, bound, _ = read_plan(engine_dir / f"rank{rank}.engine")
        if version != known["tensorrt"] or bound["sm"] != sm_of(chosen, known):
            raise RuntimeError("Failed to deserialize cuda engine.")
        weights = read_safetensors(checkpoint / f"rank{rank}.safetensors")
        write_plan(output / f"rank{rank}.engine", version, bound, weights)
    shutil.copyfile(engine_dir / "config.json", output / "config.json")
    say("Total time of refitting engines: 00:00:01")
    return 0
