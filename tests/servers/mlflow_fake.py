"""The part of MLflow's REST API that a mirror uses, in this process and strict about it.

Rules and wording of refusals follow the handlers of MLflow 3.17.2; the nightly tests run the same
story against that server. Anything that is not asked for as MLflow wants it is answered with 400.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

_RUN_FILTER = re.compile(r"tags\.`([\w.]+)` = '([^']*)'")
_VERSION_FILTER = re.compile(r"name='([^']*)' AND tags\.`([\w.]+)`='([^']*)'")
_KEY = re.compile(r"[\w./ -]{1,250}")
_SOURCE = re.compile(r"[a-z-]+:/[^/].*")


class Says(Exception):
    """A refusal."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = status, {"error_code": code, "message": message}


def wrong(message: str) -> Says:
    return Says(400, "INVALID_PARAMETER_VALUE", message)


def absent(message: str) -> Says:
    return Says(404, "RESOURCE_DOES_NOT_EXIST", message)


def present(message: str) -> Says:
    return Says(400, "RESOURCE_ALREADY_EXISTS", message)


@dataclass
class Mlflow:
    """What the server holds.

    Attributes:
        broken: answers that are given instead of the next real ones: a status, or None to cut the
            connection after the call was carried out.
        writes: every call that changes something, in order.
        authorization: what a caller has to show; None: nothing.
    """

    uri: str = ""
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: deque[int | None] = field(default_factory=deque)
    writes: list[str] = field(default_factory=list)
    authorization: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run_of(self, tag: str) -> dict[str, Any]:
        """The only run whose id tag ends like this."""
        (found,) = [run for run in self.runs.values() if run["tags"]["engine_ci.id"].endswith(tag)]
        return found

    def call(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        name = f"{method} {path}"
        if name not in _CALLS:
            raise Says(404, "ENDPOINT_NOT_FOUND", name)
        needed, act = _CALLS[name]
        given = {**query, **body}
        if missing := [key for key in needed if given.get(key) in (None, "")]:
            raise wrong(f"Missing value for required parameter {missing[0]!r}")
        if not {"get", "get-by-name", "search"} & {path.rpartition("/")[2]}:
            self.writes.append(path)
        return act(self, given) or {}


def _get_experiment(server: Mlflow, given: dict[str, Any]) -> Any:
    for experiment in server.experiments.values():
        if experiment["name"] == given["experiment_name"]:
            return {"experiment": experiment}
    raise absent(f"Could not find experiment with name '{given['experiment_name']}'")


def _create_experiment(server: Mlflow, given: dict[str, Any]) -> Any:
    if any(e["name"] == given["name"] for e in server.experiments.values()):
        raise present(f"Experiment(name={given['name']}) already exists.")
    new = str(len(server.experiments) + 1)
    server.experiments[new] = {
        "experiment_id": new,
        "name": given["name"],
        "lifecycle_stage": "active",
        "tags": given.get("tags", []),
    }
    return {"experiment_id": new}


def _create_run(server: Mlflow, given: dict[str, Any]) -> Any:
    experiment = server.experiments.get(given["experiment_id"])
    if experiment is None or experiment["lifecycle_stage"] != "active":
        raise wrong(f"The experiment {given['experiment_id']} must be in the 'active' state.")
    new = uuid4().hex
    server.runs[new] = {
        "info": {
            "run_id": new,
            "experiment_id": given["experiment_id"],
            "run_name": given["run_name"],
            "status": "RUNNING",
            "start_time": given["start_time"],
            "artifact_uri": f"mlflow-artifacts:/{given['experiment_id']}/{new}/artifacts",
            "lifecycle_stage": "active",
        },
        "tags": _tags(given),
        "params": {},
        "metrics": {},
    }
    return {"run": {"info": server.runs[new]["info"]}}


def _search_runs(server: Mlflow, given: dict[str, Any]) -> Any:
    match = _RUN_FILTER.fullmatch(given["filter"])
    if match is None or given.get("run_view_type") != "ALL":
        raise wrong(f"Invalid filter {given['filter']}")
    found = [
        {"info": run["info"]}
        for run in server.runs.values()
        if run["info"]["experiment_id"] in given["experiment_ids"]
        and run["tags"].get(match.group(1)) == match.group(2)
    ]
    return {"runs": found[: given["max_results"]]} if found else {}


def _log_batch(server: Mlflow, given: dict[str, Any]) -> Any:
    run = _active_run(server, given["run_id"])
    params, metrics = given.get("params", []), given.get("metrics", [])
    if len(params) > 100 or len(metrics) > 1000:
        raise wrong("A batch logging request can contain at most 100 params and 1000 metrics")
    if len(params) + len(metrics) > 1000:
        raise wrong("A batch logging request can contain at most 1000 metrics, params, and tags.")
    for pair in params:
        if not _KEY.fullmatch(pair["key"]) or len(pair["value"]) > 6000:
            raise wrong(f"Invalid param {pair['key']}")
        if run["params"].setdefault(pair["key"], pair["value"]) != pair["value"]:
            raise wrong("Changing param values is not allowed.")
    for point in metrics:
        if not _KEY.fullmatch(point["key"]) or not isinstance(point["value"], float):
            raise wrong(f"Invalid metric {point['key']}")
        # The same time, step and value again are the same point.
        at = (point["timestamp"], point["step"], point["value"])
        run["metrics"].setdefault(point["key"], set()).add(at)


def _update_run(server: Mlflow, given: dict[str, Any]) -> Any:
    run = _active_run(server, given["run_id"])
    if given["status"] not in {"RUNNING", "FINISHED", "FAILED", "KILLED", "SCHEDULED"}:
        raise wrong(f"Invalid status {given['status']}")
    run["info"] |= {"status": given["status"], "end_time": given["end_time"]}


def _active_run(server: Mlflow, run_id: str) -> dict[str, Any]:
    run = server.runs.get(run_id)
    if run is None:
        raise absent(f"Run '{run_id}' not found")
    if run["info"]["lifecycle_stage"] != "active":
        raise wrong(f"The run {run_id} must be in the 'active' state.")
    return run


def _get_model(server: Mlflow, given: dict[str, Any]) -> Any:
    model = _model(server, given["name"])
    return {
        "registered_model": {
            "name": given["name"],
            "tags": [{"key": k, "value": v} for k, v in model["tags"].items()],
            "aliases": [{"alias": a, "version": v} for a, v in model["aliases"].items()],
        }
    }


def _model(server: Mlflow, name: str) -> dict[str, Any]:
    if name not in server.models:
        raise absent(f"Registered Model with name={name} not found")
    return server.models[name]


def _create_model(server: Mlflow, given: dict[str, Any]) -> Any:
    if set(given["name"]) & set("/:"):
        raise wrong("Names cannot contain '/' or ':'.")
    if given["name"] in server.models:
        raise present(f"Registered Model (name={given['name']}) already exists.")
    server.models[given["name"]] = {"tags": _tags(given), "versions": {}, "aliases": {}}
    return _get_model(server, given)


def _search_versions(server: Mlflow, given: dict[str, Any]) -> Any:
    match = _VERSION_FILTER.fullmatch(given["filter"])
    if match is None:
        raise wrong(f"Invalid filter {given['filter']}")
    model = server.models.get(match.group(1), {"versions": {}})
    found = [
        {"version": number}
        for number, version in model["versions"].items()
        if version["tags"].get(match.group(2)) == match.group(3)
    ]
    return {"model_versions": found} if found else {}


def _create_version(server: Mlflow, given: dict[str, Any]) -> Any:
    model = _model(server, given["name"])
    if not _SOURCE.fullmatch(given["source"]):
        raise wrong(f"Invalid model version source: '{given['source']}'.")
    if "run_id" in given:
        _active_run(server, given["run_id"])
    number = str(len(model["versions"]) + 1)
    model["versions"][number] = {
        "tags": _tags(given),
        "source": given["source"],
        "run_id": given.get("run_id"),
    }
    return {"model_version": {"version": number}}


def _set_alias(server: Mlflow, given: dict[str, Any]) -> Any:
    model = _model(server, given["name"])
    if not re.fullmatch(r"[\w-]{1,255}", given["alias"]):
        raise wrong(f"Invalid alias name: '{given['alias']}'.")
    if re.fullmatch(r"latest|v\d+", given["alias"], re.IGNORECASE):
        raise wrong(f"alias name '{given['alias']}' is reserved.")
    if given["version"] not in model["versions"]:
        raise absent(f"Model Version (name={given['name']}, version={given['version']}) not found")
    model["aliases"][given["alias"]] = given["version"]


def _set_model_tag(server: Mlflow, given: dict[str, Any]) -> Any:
    _model(server, given["name"])["tags"][given["key"]] = given["value"]


def _tags(given: dict[str, Any]) -> dict[str, str]:
    for pair in given.get("tags", []):
        if len(pair["value"]) > 8000 or not _KEY.fullmatch(pair["key"]):
            raise wrong(f"Invalid tag {pair['key']}")
    return {pair["key"]: pair["value"] for pair in given.get("tags", [])}


_CALLS: dict[str, Any] = {
    "GET experiments/get-by-name": (("experiment_name",), _get_experiment),
    "POST experiments/create": (("name",), _create_experiment),
    "POST runs/create": (("experiment_id", "run_name", "start_time"), _create_run),
    "POST runs/search": (("experiment_ids", "filter", "max_results"), _search_runs),
    "POST runs/log-batch": (("run_id",), _log_batch),
    "POST runs/update": (("run_id", "status", "end_time"), _update_run),
    "GET registered-models/get": (("name",), _get_model),
    "POST registered-models/create": (("name",), _create_model),
    "POST registered-models/alias": (("name", "alias", "version"), _set_alias),
    "POST registered-models/set-tag": (("name", "key", "value"), _set_model_tag),
    "GET model-versions/search": (("filter",), _search_versions),
    "POST model-versions/create": (("name", "source"), _create_version),
}
_API = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: Mlflow

    def _handle(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        state = self.server_state
        with state.lock:
            broken = state.broken.popleft() if state.broken else 200
            if broken is not None and broken != 200:
                self._reply(broken, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "no"})
                return
            if state.authorization not in {None, self.headers.get("authorization")}:
                self._reply(401, None)
                return
            status, value = self._carry_out(data)
        if broken is None:  # done, and the answer is lost
            self.close_connection = True
            self.connection.close()
            return
        self._reply(status, value)

    def _carry_out(self, data: bytes) -> tuple[int, Any]:
        parts = urlsplit(self.path)
        if self.command == "PUT" and parts.path.startswith(_ARTIFACTS):
            self.server_state.artifacts[unquote(parts.path.removeprefix(_ARTIFACTS))] = data
            return 200, None
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        try:
            path = parts.path.removeprefix(_API)
            body = json.loads(data or b"{}")
            return 200, self.server_state.call(self.command, path, query, body)
        except Says as error:
            return error.answer

    do_GET = do_POST = do_PUT = _handle

    def _reply(self, status: int, value: Any) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the connection is closed on purpose


@contextmanager
def mlflow_running() -> Iterator[Mlflow]:
    """A running server."""
    state = Mlflow()
    handler = type("Handler", (_Handler,), {"server_state": state})
    server = _Server(("127.0.0.1", 0), handler)
    state.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
