"""A stand-in for Triton on loopback: repository, config and generate API, as strict as Triton.

It reads the model repository from disk when it is told to load, parses each config.pbtxt, opens
what the configs name, keeps what it has loaded in memory and forgets it when it ends. What it does
not do is run an engine: an answer is made of the bytes of the plan and of the tokenizer that were
loaded, so a test sees which of each answered. Texts and statuses of errors are Triton's (core
src/model_repository_manager, server src/http_server.cc).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.pbtxt import ParseError, parameters, parse, text_of

_UNSET = "${"


class LoadError(Exception):
    """A model that cannot be loaded, in Triton's words."""


@dataclass(frozen=True)
class Loaded:
    """One version of a model in memory."""

    version: int
    config: dict[str, list[Any]]
    stamp: tuple[tuple[str, int], ...]
    engine: str = ""
    tokenizer: str = ""

    @property
    def steps(self) -> list[str]:
        scheduling = self.config.get("ensemble_scheduling", [])
        return [text_of(step, "model_name") for part in scheduling for step in part["step"]]


@dataclass
class Fault:
    """What goes wrong with the next `times` calls of one verb for one model.

    `kind` is `refuse` (an error), `ignore` (200, and nothing is done), `empty` (an answer without
    text), `stall` (no answer while the server lives) or `cut` (the connection ends).
    """

    verb: str
    model: str
    kind: str = "refuse"
    text: str = "Internal: unexpected error"
    times: int = 1


@dataclass
class TritonServer:
    """Start with `with`; `url` is the endpoint.

    Args:
        repository: what it was started on; read through, link by link, at each load.
        seen: paths as configs name them → where they are on this machine.
        explicit: whether it takes orders.
        places: how many engines its GPUs have memory for.
    """

    repository: Path
    seen: dict[str, Path] = field(default_factory=dict)
    explicit: bool = True
    places: int = 2
    loaded: dict[str, Loaded] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    # Called after each request, before it is answered: what do clients see in between?
    on_call: Callable[[], object] | None = None

    def __enter__(self) -> TritonServer:
        self._lock = threading.RLock()
        self._ending = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                owner._answer(self, {})

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner._answer(self, json.loads(data) if data else {})

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def restart(self) -> None:
        """Forget everything, then load all there is: `--load-model=*`."""
        with self._lock:
            self.loaded.clear()
            self.reasons.clear()
            for place in sorted(self.repository.iterdir()) if self.repository.is_dir() else ():
                if place.name not in self.loaded:
                    self._load(place.name)

    def versions(self) -> dict[str, int]:
        """What is ready."""
        with self._lock:
            return {name: model.version for name, model in self.loaded.items()}

    def ask(self) -> str:
        """What a client of the ensemble, or of the checkpoint's one model, gets now."""
        with self._lock:
            entry = "ensemble" if "ensemble" in self.loaded else "tensorrt_llm"
            said = self._said(self.loaded[entry]) if entry in self.loaded else ""
            # An engine without its ensemble takes tokens, not text.
            return "503" if said.endswith(" ") or not said else said

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        path = urlsplit(handler.path).path.strip("/").split("/")
        fault = self._fault(path)
        if fault is not None and fault.kind == "stall":
            self._ending.wait()
        if fault is not None and fault.kind in {"stall", "cut"}:
            handler.close_connection = True
            handler.connection.close()
            return
        with self._lock:
            status, answer = self._reply(handler.command, path, body, fault)
            if self.on_call is not None:
                self.on_call()
        data = json.dumps(answer).encode() if answer is not None else b""
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _fault(self, path: list[str]) -> Fault | None:
        verb, model = path[-1], path[path.index("models") + 1] if "models" in path else ""
        if verb in {"load", "unload", "generate"}:
            self.calls.append((verb, model))
        for fault in self.faults:
            if (fault.verb, fault.model) == (verb, model) and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    def _reply(
        self, method: str, path: list[str], body: dict[str, Any], fault: Fault | None
    ) -> tuple[int, Any]:
        match (method, path):
            case ("GET", ["v2", "health", "live" | "ready"]):
                return 200, None
            case ("POST", ["v2", "repository", "index"]):
                return 200, self._index()
            case ("POST", ["v2", "repository", "models", name, "load" | "unload" as verb]):
                if not self.explicit:
                    text = "explicit model load / unload is not allowed if polling is enabled"
                    return 503, {"error": text}
                if fault is not None and fault.kind == "ignore":
                    return 200, {}
                return self._load(name, fault) if verb == "load" else self._unload(name)
            case ("GET", ["v2", "models", name, "versions", version, "config"]):
                model = self._ready(name, version)
                if model is None:
                    return 400, {"error": f"Request for unknown model: '{name}'"}
                told = {k: {"string_value": v} for k, v in parameters(model.config).items()}
                return 200, {"name": name, "parameters": told}
            case ("POST", ["v2", "models", name, "versions", version, "generate"]):
                return self._generate(name, version, body, fault)
            case _:
                return 404, {"error": "Not Found"}

    def _index(self) -> list[dict[str, str]]:
        on_disk = {p.name for p in self.repository.iterdir()} if self.repository.is_dir() else set()
        found: list[dict[str, str]] = []
        for name in sorted(on_disk | set(self.loaded) | set(self.reasons)):
            if name in self.loaded:
                version = str(self.loaded[name].version)
                found.append({"name": name, "version": version, "state": "READY"})
            elif name in self.reasons:
                reason = self.reasons[name]
                found.append(
                    {"name": name, "version": "1", "state": "UNAVAILABLE", "reason": reason}
                )
            else:
                found.append({"name": name})
        return found

    def _load(self, name: str, fault: Fault | None = None) -> tuple[int, Any]:
        place = self.repository / name
        if not (place / "config.pbtxt").is_file():
            text = f"failed to load '{name}', failed to poll from model repository"
            return 500, {"error": text}
        versions = [int(p.name) for p in place.iterdir() if p.is_dir() and p.name.isdigit()]
        if not versions:
            text = "at least one version must be available under the version policy of model"
            return 400, {"error": f"{text} '{name}'"}
        version = max(versions)
        stamp = _stamp(place)
        current = self.loaded.get(name)
        if current is not None and (current.version, current.stamp) == (version, stamp):
            return 200, {}
        try:
            if fault is not None:
                raise LoadError(fault.text)
            model = self._made(name, place, version, stamp)
        except (LoadError, ParseError) as error:
            reason = f"version {version} is at UNAVAILABLE state: {error};"
            if name not in self.loaded:
                self.reasons[name] = reason
            return 400, {"error": f"load failed for model '{name}': {reason}\n"}
        # Only now is the version that served before let go.
        self.loaded[name] = model
        self.reasons.pop(name, None)
        return 200, {}

    def _unload(self, name: str) -> tuple[int, Any]:
        self.loaded.pop(name, None)
        self.reasons[name] = "unloaded"
        for other, model in list(self.loaded.items()):
            if name in model.steps:
                self.loaded.pop(other)
                self.reasons[other] = f"depends on '{name}' which has no loaded version"
        return 200, {}

    def _made(
        self, name: str, place: Path, version: int, stamp: tuple[tuple[str, int], ...]
    ) -> Loaded:
        config = parse((place / "config.pbtxt").read_text())
        if text_of(config, "name") != name:
            raise LoadError(f"unexpected directory name '{name}' for model '{config.get('name')}'")
        values = {k: v for k, v in parameters(config).items() if not v.startswith(_UNSET)}
        home = place / str(version)
        backend = text_of(config, "backend")
        loaded = Loaded(version=version, config=config, stamp=stamp)
        if text_of(config, "platform") == "ensemble":
            for step in loaded.steps:
                if step not in self.loaded and self._load(step)[0] != 200:
                    raise LoadError(f"ensemble '{name}' depends on '{step}' which is not ready")
            return loaded
        if backend == "tensorrtllm":
            return self._with_engine(loaded, values, name)
        if backend != "python":
            raise LoadError(f"unable to find backend library for backend '{backend}'")
        if not (home / "model.py").is_file():
            raise LoadError(f"model.py does not exist in the model repository path: {home}")
        if (home / "model.yaml").is_file():
            return self._with_checkpoint(loaded, home / "model.yaml")
        count = config["instance_group"][0]["count"][0]
        if not isinstance(count, int) or count < 1:
            raise LoadError(f"instance group of '{name}' has count {count}")
        if name in {"preprocessing", "postprocessing"}:
            folder = self._path(values, "tokenizer_dir")
            tokenizer = folder / "tokenizer.json"
            if not tokenizer.is_file():
                raise LoadError(f"Internal: OSError: Incorrect path: '{folder}'")
            return Loaded(version, config, stamp, tokenizer=_mark(tokenizer))
        if values.get("accumulate_tokens") not in {"true", "false"}:
            raise LoadError("Internal: KeyError: 'accumulate_tokens'")
        return loaded

    def _with_engine(self, loaded: Loaded, values: dict[str, str], name: str) -> Loaded:
        if values.get("gpt_model_type") not in {"inflight_fused_batching", "V1"}:
            raise LoadError("Invalid argument: Invalid gpt_model_type")
        policy = loaded.config["model_transaction_policy"][0]
        if text_of(policy, "decoupled") not in {"true", "false"}:
            raise LoadError("Invalid argument: decoupled is no boolean")
        folder = self._path(values, "gpt_model_path")
        engine = json.loads((folder / "config.json").read_bytes())
        ranks = engine["pretrained_config"]["mapping"]["world_size"]
        plans = [folder / f"rank{rank}.engine" for rank in range(ranks)]
        for plan in plans:
            if not plan.is_file() or plan.read_bytes()[:4] != b"ftrt":
                raise LoadError("Assertion failed: Failed to deserialize cuda engine.")
        if (ids := values.get("gpu_device_ids")) and len(ids.split(",")) != ranks:
            raise LoadError(f"Assertion failed: {len(ids.split(','))} devices for {ranks} ranks")
        largest = engine["build_config"]["max_batch_size"]
        if not 0 < loaded.config["max_batch_size"][0] <= largest:
            raise LoadError(f"Assertion failed: max_batch_size exceeds {largest}")
        if (name in self.loaded) + 1 > self.places:
            raise LoadError("Error Code 2: OutOfMemory (no further information)")
        mark = "".join(_mark(plan) for plan in plans)
        return Loaded(loaded.version, loaded.config, loaded.stamp, engine=mark)

    def _with_checkpoint(self, loaded: Loaded, path: Path) -> Loaded:
        arguments = json.loads(path.read_bytes())
        triton = arguments["triton_config"]
        if not isinstance(triton["decoupled"], bool) or triton["max_batch_size"] != 0:
            raise LoadError(f"Internal: triton_config is {triton}")
        if arguments.get("backend") != "pytorch":
            raise LoadError("Internal: ValueError: backend")
        folder = self._path(arguments, "model")
        if not (folder / "config.json").is_file():
            raise LoadError(f"Internal: OSError: {folder} does not appear to have config.json")
        if ("tensorrt_llm" in self.loaded) + 1 > self.places:
            raise LoadError("torch.OutOfMemoryError: CUDA out of memory")
        weights = sorted(folder.glob("*.safetensors"))
        return Loaded(
            loaded.version,
            loaded.config,
            loaded.stamp,
            engine="".join(map(_mark, weights)),
            tokenizer=_mark(folder / "tokenizer.json"),
        )

    def _path(self, values: dict[str, Any], key: str) -> Path:
        stated = str(values.get(key, ""))
        for prefix, real in self.seen.items():
            if stated == prefix or stated.startswith(prefix + "/"):
                path = Path(str(real) + stated.removeprefix(prefix))
                break
        else:
            path = Path(stated)
            if self.seen:
                raise LoadError(f"Internal: {key} '{stated}': No such file or directory")
        if not path.is_dir():
            raise LoadError(f"Internal: {key} '{stated}': No such file or directory")
        return path

    def _ready(self, name: str, version: str) -> Loaded | None:
        model = self.loaded.get(name)
        return model if model is not None and str(model.version) == version else None

    def _generate(
        self, name: str, version: str, body: dict[str, Any], fault: Fault | None
    ) -> tuple[int, Any]:
        model = self._ready(name, version)
        if model is None:
            text = f"Request for unknown model: '{name}' version {version} is not at ready state"
            return 400, {"error": text}
        if fault is not None and fault.kind == "refuse":
            return 500, {"error": fault.text}
        inputs = {text_of(entry, "name"): entry for entry in model.config["input"]}
        missing = [n for n, e in inputs.items() if "optional" not in e and n not in body]
        if missing or (unknown := sorted(set(body) - set(inputs))):
            return 400, {"error": f"unexpected inputs: missing {missing}, unknown {unknown}"}
        said = "" if fault is not None and fault.kind == "empty" else self._said(model)
        if said.startswith("503"):
            return 503, {"error": said}
        return 200, {"model_name": name, "model_version": version, "text_output": said}

    def _said(self, model: Loaded) -> str:
        if not model.steps:
            return f"{model.engine} {model.tokenizer}"
        parts = [self.loaded.get(step) for step in model.steps]
        if None in parts:
            return "503 in ensemble, a composing model is not ready"
        before, engine, after = (part for part in parts if part is not None)
        tokenizer = before.tokenizer if before.tokenizer == after.tokenizer else "mixed"
        return f"{engine.engine} {tokenizer}"


def mark(data: bytes) -> str:
    """What an answer shows of a file that was loaded."""
    return hashlib.sha256(data).hexdigest()[:8]


def _mark(path: Path) -> str:
    return mark(path.read_bytes())


def _stamp(place: Path) -> tuple[tuple[str, int], ...]:
    return tuple((str(p), p.stat().st_mtime_ns) for p in sorted(place.rglob("*")))
