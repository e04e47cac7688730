"""An MLflow server over its REST API 2.0: the calls that a mirror needs, each safe to repeat.

No MLflow package is needed: importing its client takes seconds, and these calls have been the same
since MLflow 2. Read against the handlers of MLflow 3.17.2 and run against that server.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from engine_pipeline.redact import redact, without_path
from engine_pipeline.tracking.http import Request, exchange
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

TIMEOUT_S = 20.0
# `mlflow.utils.validation` of 3.17.2: 100 parameters and 1,000 of everything in one call.
_PARAMS = 100
_POINTS = 900
_ABSENT = "RESOURCE_DOES_NOT_EXIST"
_PRESENT = "RESOURCE_ALREADY_EXISTS"


class Refused(Exception):
    """The server answered, and not with success."""

    def __init__(self, status: int, code: str, message: str, retry_after: str | None) -> None:
        super().__init__(f"{status} {code}: {message}" if code else f"{status}: {message}")
        self.status = status
        self.code = code
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as the server holds it."""

    run_id: str
    artifact_uri: str
    is_finished: bool
    is_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is and how it is spoken to."""

    uri: str
    headers: Mapping[str, str]
    trust: ssl.SSLContext | bool

    @classmethod
    def from_environment(cls, uri: str, environment: Mapping[str, str]) -> Address:
        """The server at `uri`, with the credentials that MLflow's own variables name.

        `MLFLOW_TRACKING_USERNAME` and `_PASSWORD`, or `_TOKEN`; `_INSECURE_TLS`,
        `_SERVER_CERT_PATH`.

        Raises:
            InvalidInput: no http(s) address, or certificates that cannot be read.
        """
        parts = urlsplit(uri)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidInput(
                f"MLflow at {without_path(uri)}: not an http:// or https:// address",
                hint="give the address of a tracking server with --uri or MLFLOW_TRACKING_URI",
                reference="mlflow-address",
            )
        if parts.username is not None:
            raise InvalidInput(
                f"MLflow at {without_path(uri)}: the address holds a user name",
                hint="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead",
                reference="mlflow-address",
            )
        headers = {}
        user = environment.get("MLFLOW_TRACKING_USERNAME")
        password = environment.get("MLFLOW_TRACKING_PASSWORD")
        token = environment.get("MLFLOW_TRACKING_TOKEN")
        if user and password:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["authorization"] = f"Basic {pair}"
        elif token:
            headers["authorization"] = f"Bearer {token}"
        return cls(uri=uri.rstrip("/"), headers=headers, trust=_trust(environment))


class MlflowServer:
    """One server.

    Every call raises `Refused`, or `http.NoReply` where no answer came.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    @property
    def place(self) -> str:
        """The address as far as it may be shown."""
        return without_path(self._address.uri)

    def experiment(self, name: str, tags: Mapping[str, str]) -> tuple[str, bool]:
        """The id of an experiment, made if it is missing, and whether somebody deleted it."""
        query = {"experiment_name": name}
        found = self._get_or_none("experiments/get-by-name", query)
        if found is None:
            try:
                made = self._post("experiments/create", {"name": name, "tags": _pairs(tags)})
            except Refused as error:
                if error.code != _PRESENT:  # somebody was quicker
                    raise
                found = self._get("experiments/get-by-name", query)
            else:
                return str(made["experiment_id"]), False
        experiment = found["experiment"]
        return str(experiment["experiment_id"]), experiment.get("lifecycle_stage") == "deleted"

    def find_run(self, experiment: str, tag: str, value: str) -> Run | None:
        """The first run with this tag, deleted ones included."""
        found = self._post(
            "runs/search",
            {
                "experiment_ids": [experiment],
                "filter": f"tags.`{tag}` = '{value}'",
                "run_view_type": "ALL",
                "max_results": 1,
                "order_by": ["attributes.start_time ASC"],
            },
        ).get("runs", [])
        return _run(found[0]["info"]) if found else None

    def create_run(
        self, experiment: str, name: str, started_ms: int, tags: Mapping[str, str]
    ) -> Run:
        """A new run, with its tags from the first moment on."""
        body = {
            "experiment_id": experiment,
            "run_name": name,
            "start_time": started_ms,
            "tags": _pairs(tags),
        }
        return _run(self._post("runs/create", body)["run"]["info"])

    def log(
        self,
        run: Run,
        params: Mapping[str, str],
        metrics: Mapping[str, Mapping[int, float]],
        at_ms: int,
    ) -> None:
        """Parameters, and metrics by step; the same ones again change nothing."""
        pairs = _pairs(params)
        points = [
            {"key": key, "value": value, "timestamp": at_ms, "step": step}
            for key, steps in metrics.items()
            for step, value in steps.items()
        ]
        while pairs or points:
            body = {"run_id": run.run_id, "params": pairs[:_PARAMS], "metrics": points[:_POINTS]}
            self._post("runs/log-batch", body)
            pairs, points = pairs[_PARAMS:], points[_POINTS:]

    def finish(self, run: Run, status: str, ended_ms: int) -> None:
        """End a run; the last thing that is written of it."""
        body = {"run_id": run.run_id, "status": status, "end_time": ended_ms}
        self._post("runs/update", body)

    def put_artifact(self, run: Run, path: str, data: bytes) -> bool:
        """Store a file with a run; False if the server hands artifacts to somewhere else."""
        place = urlsplit(run.artifact_uri)
        if place.scheme != "mlflow-artifacts":
            return False
        folder = place.path.strip("/")
        url = f"{self._address.uri}/api/2.0/mlflow-artifacts/artifacts/{quote(f'{folder}/{path}')}"
        self._ask("PUT", url, data, "application/octet-stream")
        return True

    def model(self, name: str, description: str, tags: Mapping[str, str]) -> dict[str, str]:
        """The tags of a registered model, which is made if it is missing."""
        found = self._get_or_none("registered-models/get", {"name": name})
        if found is None:
            body = {"name": name, "description": description, "tags": _pairs(tags)}
            try:
                found = self._post("registered-models/create", body)
            except Refused as error:
                if error.code != _PRESENT:  # somebody was quicker
                    raise
                found = self._get("registered-models/get", {"name": name})
        return {t["key"]: t["value"] for t in found["registered_model"].get("tags", [])}

    def find_version(self, model: str, tag: str, value: str) -> str | None:
        """The lowest version of a model with this tag."""
        query = {"filter": f"name='{model}' AND tags.`{tag}`='{value}'", "max_results": "100"}
        found = self._get("model-versions/search", query).get("model_versions", [])
        return min((str(v["version"]) for v in found), key=int, default=None)

    def create_version(
        self, model: str, *, source: str, run: Run | None, description: str, tags: Mapping[str, str]
    ) -> str:
        """A new version of a model."""
        body: dict[str, Any] = {
            "name": model,
            "source": source,
            "description": description,
            "tags": _pairs(tags),
        }
        if run is not None:
            body["run_id"] = run.run_id
        return str(self._post("model-versions/create", body)["model_version"]["version"])

    def aliases(self, model: str) -> dict[str, str]:
        """Which version each alias of a model names."""
        found = self._get("registered-models/get", {"name": model})["registered_model"]
        return {a["alias"]: str(a["version"]) for a in found.get("aliases", [])}

    def set_alias(self, model: str, alias: str, version: str) -> None:
        """Let an alias name a version."""
        body = {"name": model, "alias": alias, "version": version}
        self._post("registered-models/alias", body)

    def set_model_tag(self, model: str, key: str, value: str) -> None:
        """Set a tag of a registered model."""
        self._post("registered-models/set-tag", {"name": model, "key": key, "value": value})

    def _get_or_none(self, path: str, query: Mapping[str, str]) -> Any:
        try:
            return self._get(path, query)
        except Refused as error:
            if error.code == _ABSENT:
                return None
            raise

    def _get(self, path: str, query: Mapping[str, str]) -> Any:
        url = f"{self._address.uri}/api/2.0/mlflow/{path}?{urlencode(query, quote_via=quote)}"
        return self._ask("GET", url, None, "application/json")

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        url = f"{self._address.uri}/api/2.0/mlflow/{path}"
        return self._ask("POST", url, json.dumps(body).encode(), "application/json")

    def _ask(self, method: str, url: str, body: bytes | None, media_type: str) -> Any:
        reply = exchange(
            Request(
                method=method,
                url=url,
                headers={"content-type": media_type, **self._address.headers},
                body=body,
                timeout_s=TIMEOUT_S,
                trust=self._address.trust,
            )
        )
        try:
            answer = json.loads(reply.body or b"{}")
        except ValueError:
            answer = None
        if 200 <= reply.status < 300 and (isinstance(answer, dict) or method == "PUT"):
            return answer
        said = answer if isinstance(answer, dict) else {}
        code = str(said.get("error_code", ""))
        # Errors of the database behind the server come with the whole statement; one line says it.
        text = str(said.get("message") or reply.body[:200].decode(errors="replace"))
        message = redact(text.splitlines()[0] if text else "no explanation")[:300]
        raise Refused(reply.status, code, message, reply.headers.get("retry-after"))


def _run(info: dict[str, Any]) -> Run:
    return Run(
        run_id=info["run_id"],
        artifact_uri=info.get("artifact_uri", ""),
        is_finished=info.get("status") in {"FINISHED", "FAILED", "KILLED"},
        is_deleted=info.get("lifecycle_stage") == "deleted",
    )


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _trust(environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    import ssl

    if environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in {"1", "true"}:
        return False
    path = environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    if not path:
        return True
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"MLFLOW_TRACKING_SERVER_CERT_PATH {path}: cannot be read: {error}",
            hint="name a file with certificates in PEM form",
            reference="mlflow-certificate",
        ) from error
