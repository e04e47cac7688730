"""Claim: the measuring client errs no more than the load tools of the field.

A server of known delays, in a process of its own, keeps every client waiting 200 ms for the first
token and 50 ms for each further one, and notes what it really did. Each client, in turn, keeps 1,
32 and 256 streams open. A client's error is the distance between its percentile of TTFT and the
server's own over the same answers. Peers: AIPerf and GuideLLM, each with its own defaults, and one
shared session of `aiohttp` and `httpx`, the libraries that home-made clients are written with.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import measure
from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.load import Load
from engine_pipeline.gates.performance import measure as make_load
from engine_pipeline.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TTFT_MS, GAP_MS = 200.0, 50.0
TOKENS, WORDS = 16, 48
# Concurrency → requests of one run: some waves, and enough for a p99 where that can be had.
STREAMS = {1: 30, 32: 320, 256: 1280}
QUICK = {1: 3, 32: 64, 256: 256}
OURS = "engine-ci"
_PEERS = measure.ROOT / ".venv-load-peers" / "bin"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    """One load, to be made by any client."""

    url: str
    concurrency: int
    requests: int
    scratch: Path

    def options(self, **more: int) -> list[str]:
        """As command-line options, with `more`."""
        named = {"concurrency": self.concurrency, "requests": self.requests, **more}
        return [word for name, value in named.items() for word in (f"--{name}", str(value))]


@dataclass
class Errors:
    """Of one client at one concurrency, one entry for each run, in ms."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    seen_p50: list[float] = field(default_factory=list)
    seen_p99: list[float] = field(default_factory=list)

    def add(self, seen: Sequence[float], truth: Sequence[float]) -> None:
        """Note one run: what the client saw, and what the server did."""
        for share, errors, shown in (
            (0.5, self.p50, self.seen_p50),
            (0.99, self.p99, self.seen_p99),
        ):
            shown.append(measure.percentile(seen, share))
            errors.append(abs(shown[-1] - measure.percentile(truth, share)))


def ours(run: Run) -> list[float]:
    """The client that gates measure with."""
    load = Load(
        requests=run.requests,
        concurrency=run.concurrency,
        output_tokens=TOKENS,
        prompt_words=WORDS,
        warmup_requests=1,
    )

    async def act() -> list[float]:
        endpoint = Endpoint(base_url=run.url, model="delays")
        async with ChatClient(endpoint, timeout_s=60) as client:
            result = await make_load(client, load, progress=Silent(), gone=lambda: None)
        return [one.ttft_ms for one in result.samples if one.ttft_ms is not None]

    return asyncio.run(act())


def library(name: str) -> Callable[[Run], list[float]]:
    """A shared session of a library."""

    def go(run: Run) -> list[float]:
        script = [_PEERS / "python", _HERE / "load_peer.py", name, "--url", run.url]
        said = measure.command(*script, *run.options(tokens=TOKENS, words=WORDS))
        return [float(one) for one in json.loads(said)]

    return go


def aiperf(run: Run) -> list[float]:
    """AIPerf with its defaults: several processes, pooled connections, no ramp."""
    out = run.scratch / "aiperf"
    measure.remove(out)
    argv = [_PEERS / "aiperf", "profile", "--model", "delays", "--url", run.url]
    argv += ["--endpoint-type", "chat", "--streaming", "--tokenizer", run.scratch / "tokenizer"]
    argv += ["--concurrency", run.concurrency, "--request-count", run.requests]
    argv += ["--synthetic-input-tokens-mean", WORDS, "--output-tokens-mean", TOKENS]
    argv += ["--output-artifact-dir", out, "--ui", "none", "--no-gpu-telemetry"]
    argv += ["--no-server-metrics", "--use-server-token-count"]
    measure.command(*map(str, argv), cwd=run.scratch)
    [records] = out.glob("**/profile_export.jsonl")
    lines = [json.loads(line)["metrics"] for line in records.read_text().splitlines()]
    return [line["time_to_first_token"]["value"] for line in lines]


def guidellm(run: Run) -> list[float]:
    """GuideLLM with its defaults: several processes, `httpx`."""
    out = run.scratch / "guidellm.json"
    argv = [_PEERS / "guidellm", "run", "--disable-console"]
    argv += ["--backend", f"kind=openai_http,target={run.url},model=delays"]
    argv += ["--profile", f"kind=concurrent,streams={run.concurrency}"]
    argv += ["--constraint", f"kind=max_requests,count={run.requests}"]
    argv += ["--tokenizer", f"kind=huggingface_auto,model={run.scratch / 'tokenizer'}"]
    argv += ["--data", f"kind=synthetic_text,prompt_tokens={WORDS},output_tokens={TOKENS}"]
    argv += ["--output", f"kind=json,path={out}"]
    measure.command(*map(str, argv), cwd=run.scratch, env={"HF_HUB_OFFLINE": "1"})
    [made] = json.loads(out.read_text())["benchmarks"]
    return [
        one["time_to_first_token_ms"]
        for one in made["requests"]["successful"]
        if one["time_to_first_token_ms"] is not None
    ]


@contextmanager
def delays() -> Iterator[str]:
    """The URL of a server of known delays, while the block runs."""
    python = _PEERS / "python"
    argv = [python if python.is_file() else sys.executable, _HERE / "delay_server.py"]
    argv += ["--ttft-ms", str(TTFT_MS), "--gap-ms", str(GAP_MS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def truth(url: str) -> list[float]:
    """The times to the first token of what was served since the last time."""
    with urllib.request.urlopen(f"{url}/truth") as answer:
        return list(json.load(answer)["ttft_ms"])


def clients() -> dict[str, Callable[[Run], list[float]]]:
    """Those that are installed."""
    found: dict[str, Callable[[Run], list[float]]] = {OURS: ours}
    for name, tool in (("AIPerf", aiperf), ("GuideLLM", guidellm)):
        if (_PEERS / name.lower()).is_file():
            found[name] = tool
    if (_PEERS / "aiperf").is_file():  # brings both libraries along
        found |= {name: library(name) for name in ("aiohttp", "httpx")}
    else:
        print(f"no {_PEERS}: `make bench-load-peers` installs AIPerf and GuideLLM")
    return found


def table(streams: int, requests: int, found: dict[str, Errors]) -> None:
    """Print one concurrency; a ratio is the row's error over that of engine-ci."""
    print(f"\n{streams} streams, {requests} answers in each run, TTFT in ms\n")
    print("| | p50 seen | p50 error | × engine-ci | p99 seen | p99 error | × engine-ci |")
    print("|---|---|---|---|---|---|---|")
    base = found[OURS]
    for name, errors in found.items():
        cells = [name]
        for shown, error, ours_ in (
            (errors.seen_p50, errors.p50, base.p50),
            (errors.seen_p99, errors.p99, base.p99),
        ):
            middle, mine = statistics.median(error), statistics.median(ours_)
            ratio = "" if name == OURS else f"{middle / mine:.1f}"
            cells += [f"{statistics.median(shown):.1f}", f"{middle:.2f}", ratio]
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()


def _tokenizer(scratch: Path) -> None:
    """A tokenizer for the tools, which want one: a word is a token, and nothing is fetched."""
    words = ("word", "stone", "river", "window", "paper", "bridge", "candle")
    program = (
        "import sys; from tokenizers import Tokenizer, models, pre_tokenizers\n"
        "from transformers import PreTrainedTokenizerFast as Fast\n"
        "words = ['[UNK]', '[EOS]', *sys.argv[2:]]\n"
        "made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, '[UNK]'))\n"
        "made.pre_tokenizer = pre_tokenizers.Whitespace()\n"
        "fast = Fast(tokenizer_object=made, unk_token='[UNK]', eos_token='[EOS]')\n"
        "fast.save_pretrained(sys.argv[1])\n"
    )
    measure.command(_PEERS / "python", "-c", program, scratch / "tokenizer", *words)


def main() -> None:
    options = measure.arguments(
        __doc__,
        repeats=(3, "runs of each client at each concurrency"),
        only=("", "these clients, separated by commas"),
    )
    repeats, loads = (1, QUICK) if options.quick else (int(options.repeats), STREAMS)
    with measure.bench(__doc__, options.dir) as scratch, delays() as url:
        found = clients()
        if options.only:
            found = {name: found[name] for name in [OURS, *options.only.split(",")]}
        if len(found) > 1:
            _tokenizer(scratch)
        for streams, requests in loads.items():
            errors = {name: Errors() for name in found}
            for _ in range(repeats):
                for name, make in found.items():
                    truth(url)
                    seen = make(Run(url, streams, requests, scratch))
                    errors[name].add(seen, truth(url))
            table(streams, requests, errors)


if __name__ == "__main__":
    main()
