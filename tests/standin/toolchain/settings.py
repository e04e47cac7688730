"""What the stand-in was told: the GPU it pretends to have, and how it shall fail.

`settings.json`, written at installation; all but `version` may be left out:

    version     the release it stands in for
    board       name of its GPUs, as NVML says it; `gpus` how many
    fail        tool → name of a failure: a build message of the facts, or a shape from below; or
                pairs of words of the command line and such a name, so that one image has them all
    slow_s      seconds that `slow` takes
    message     text printed by `fail: {tool: "say"}`, exit 1, and by "hang", which never ends
    plan_bytes  size of each plan; else the weights' own
    hidden_awq_cache  quantize.py leaves an FP8 KV cache with int4_awq, as was seen of some release
    adjust      fields of build_config that the builder sets otherwise
    hoard_mib   memory to allocate with `fail: {tool: "hoard"}`
    load_s      how long trtllm-serve takes to load
    answers     pairs of regular expression and answer for trtllm-serve

Shapes of failure: `leftover-config` config.json alone, exit 1; `partial-ranks` the first rank only,
exit 1; `zero-byte` an empty plan, exit 0; `no-output` nothing at all, exit 0; `silence` never
another word until it is killed; `slow` takes its time and then does as it should; `hoard` takes
memory until the kernel ends it; `full-disk` fills the output.
"""

import json
import os
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
DEFAULT_BOARD = "NVIDIA H100 80GB HBM3"


def facts():
    return json.loads((_ROOT / "facts.json").read_text())


def settings():
    stated = json.loads((_ROOT / "settings.json").read_text())
    return {"board": DEFAULT_BOARD, "gpus": 8, "fail": {}, "answers": []} | stated


def visible_gpus(chosen):
    """As CUDA counts them: those of CUDA_VISIBLE_DEVICES that are there."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return chosen["gpus"]
    return min(chosen["gpus"], len([item for item in listed.split(",") if item.strip()]))


def sm_of(chosen, known):
    return known["boards"][chosen["board"]]


def say(line):
    print(f"[TensorRT-LLM] {line}", flush=True)


def message(known, part, name):
    """The text that the real tool prints, from the facts."""
    return known["messages"][part][name]["match"][0]


def fail_as_told(tool, known, chosen):
    """Fail with a message of the facts, fall silent or take memory, if the settings say so."""
    wish = shape_of_failure(tool, chosen)
    if wish is None:
        return
    if wish == "silence":
        say("calibrating")
        while True:
            time.sleep(3600)
    if wish == "slow":
        say("taking its time")
        time.sleep(chosen.get("slow_s", 3))
        return
    if wish == "hoard":
        hoard = []
        for _ in range(chosen.get("hoard_mib", 4096)):
            hoard.append(b"x" * (1 << 20))
        say(f"{len(hoard)} MiB and still alive")
        raise SystemExit(1)
    if wish in {"say", "hang"}:
        print(chosen["message"], file=sys.stderr, flush=True)
        while wish == "hang":
            time.sleep(3600)
        raise SystemExit(1)
    row = known["messages"]["build"].get(wish)
    if row is None:
        return
    for text in row["match"]:
        print(text, file=sys.stderr, flush=True)
    code = row.get("exit", 1)
    if code == 137:
        os.kill(os.getpid(), 9)
    raise SystemExit(code)


def shape_of_failure(tool, chosen):
    """The failure that this command line shall have; None for none."""
    wish = chosen["fail"].get(tool)
    if not isinstance(wish, list):
        return wish
    given = " ".join(sys.argv[1:]) + " "
    return next((name for words, name in wish if f"{words} " in given), None)
