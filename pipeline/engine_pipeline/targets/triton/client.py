"""Triton's HTTP API: what is loaded, load, unload, config, one prompt.

Sources: model repository, model configuration and generate extensions of the KServe protocol
(triton-inference-server/server, docs/protocol). A load is answered when it is done or has failed;
an unload is answered when it has begun.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from engine_registry.errors import EngineCIError, InvalidInput, JudgedAndRefused, Unavailable

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress

_TIMEOUT_S = 30.0
_POLL_S = 0.2
_NOT_EXPLICIT = "explicit model load / unload is not allowed"
_NOT_POLLED = "failed to poll from model repository"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server said."""

    status: int
    body: Any

    @property
    def error(self) -> str:
        """Its error text, on one line."""
        said = self.body.get("error") if isinstance(self.body, dict) else None
        return " ".join(str(said or f"HTTP {self.status}").split())[:600]


class TritonClient:
    """One server.

    Args:
        url: of its HTTP endpoint.
        load_timeout_s: how long one load, unload or prompt may take.
        repository: what the server has to be started on, for errors.

    Attributes:
        url, repository: as given.
    """

    def __init__(self, url: str, *, load_timeout_s: float, repository: str) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = load_timeout_s
        self.repository = repository
        # A server beside us is not behind a proxy, whatever the environment says.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def ready(self) -> dict[str, frozenset[int]]:
        """Versions that are ready, by model.

        Raises:
            Unavailable: the server cannot be asked.
        """
        found: dict[str, set[int]] = {}
        for entry in self._index():
            if entry.get("state") == "READY" and str(entry.get("version", "")).isdigit():
                found.setdefault(str(entry["name"]), set()).add(int(entry["version"]))
        return {name: frozenset(versions) for name, versions in found.items()}

    def parameters(self, model: str, version: int) -> dict[str, str]:
        """Parameters in the config of a loaded model; empty if it is not loaded."""
        reply = self._call("GET", f"models/{model}/versions/{version}/config")
        if reply.status != HTTPStatus.OK or not isinstance(reply.body, dict):
            return {}
        return {
            name: str(value.get("string_value", ""))
            for name, value in reply.body.get("parameters", {}).items()
            if isinstance(value, dict)
        }

    def load(self, model: str, progress: Progress) -> None:
        """Load what is on disk; returns when it is ready.

        Raises:
            InvalidInput: `triton-not-explicit`, `triton-other-repository`.
            JudgedAndRefused: `triton-load-failed`: the engine does not load; the server's reason.
            Unavailable: the server cannot be asked, or took too long.
        """
        reply = self._patiently(f"repository/models/{model}/load", progress)
        if reply.status == HTTPStatus.OK:
            return
        self._refuse_setup(model, reply)
        raise JudgedAndRefused(
            f"{self.url}: {model} does not load: {reply.error}",
            hint="the server's log has the whole story; `enginectl check` compares engine and node",
            reference="triton-load-failed",
        )

    def unload(self, model: str, progress: Progress) -> None:
        """Unload every version; returns when none is ready or still going.

        Raises:
            EngineCIError: as `load`.
        """
        reply = self._call("POST", f"repository/models/{model}/unload", {})
        if reply.status != HTTPStatus.OK:
            self._refuse_setup(model, reply)
            raise self._not_done(f"does not unload {model}: {reply.error}")
        began = time.monotonic()
        while any(
            entry.get("state") in {"READY", "UNLOADING"}
            for entry in self._index()
            if entry.get("name") == model
        ):
            if time.monotonic() - began > self._timeout_s:
                raise self._not_done(f"still has {model} after {self._timeout_s:.0f} s")
            progress.update(time.monotonic() - began, None, "s")
            time.sleep(_POLL_S)

    def generate(self, model: str, version: int, body: dict[str, Any], progress: Progress) -> str:
        """The answer to one prompt.

        Raises:
            JudgedAndRefused: `triton-prompt-failed`: an error, or an empty answer.
            Unavailable: the server cannot be asked, or took too long.
        """
        reply = self._patiently(f"models/{model}/versions/{version}/generate", progress, body)
        said = reply.body.get("text_output") if isinstance(reply.body, dict) else None
        if isinstance(said, list):
            said = "".join(str(part) for part in said)
        if reply.status != HTTPStatus.OK or not isinstance(said, str) or not said.strip():
            why = reply.error if reply.status != HTTPStatus.OK else f"answered {said!r}"
            raise JudgedAndRefused(
                f"{self.url}: {model} is loaded and does not answer a prompt: {why}",
                hint="the server's log has the whole story; judge the engine with `enginectl gate`",
                reference="triton-prompt-failed",
            )
        return said

    def _index(self) -> list[dict[str, Any]]:
        reply = self._call("POST", "repository/index", {})
        if reply.status != HTTPStatus.OK or not isinstance(reply.body, list):
            raise self._not_done(f"does not tell its models: {reply.error}")
        return [entry for entry in reply.body if isinstance(entry, dict)]

    def _patiently(
        self, path: str, progress: Progress, body: dict[str, Any] | None = None
    ) -> Reply:
        """A call that may take minutes; progress hears that time passes."""
        began = time.monotonic()
        box: queue.SimpleQueue[Reply | EngineCIError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                box.put(self._call("POST", path, body or {}, self._timeout_s))
            except EngineCIError as error:
                box.put(error)

        # A daemon: whoever interrupts a deployment does not wait for the server.
        threading.Thread(target=ask, daemon=True).start()
        while True:
            try:
                said = box.get(timeout=1.0)
            except queue.Empty:
                progress.update(time.monotonic() - began, None, "s")
                continue
            if isinstance(said, EngineCIError):
                raise said
            return said

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> Reply:
        request = urllib.request.Request(
            f"{self.url}/v2/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with self._open(request, timeout=timeout_s) as answer:
                return Reply(status=answer.status, body=_json(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(status=error.code, body=_json(error.read()))
        except TimeoutError as error:
            raise self._not_done(f"no answer to {path} within {timeout_s:.0f} s") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._not_done(f"no answer to {path} within {timeout_s:.0f} s") from error
            raise Unavailable(
                f"{self.url}: Triton cannot be reached: {reason or type(error).__name__}",
                hint=f"start it: tritonserver --model-control-mode=explicit "
                f"--model-repository={self.repository}",
                reference="triton-unreachable",
            ) from error

    def _refuse_setup(self, model: str, reply: Reply) -> None:
        if _NOT_EXPLICIT in reply.error:
            raise InvalidInput(
                f"{self.url}: Triton does not take orders: {reply.error}",
                hint="start it with --model-control-mode=explicit",
                reference="triton-not-explicit",
            )
        if _NOT_POLLED in reply.error:
            raise InvalidInput(
                f"{self.url}: Triton finds no {model}: it looks at another repository, or cannot "
                f"read this one: {reply.error}",
                hint=f"start it with --model-repository={self.repository}; a container needs the "
                "target's whole directory mounted, see `seen_as`",
                reference="triton-other-repository",
            )

    def _not_done(self, what: str) -> EngineCIError:
        return Unavailable(
            f"{self.url}: Triton {what}",
            hint="look at its log, then run the same command again",
            reference="triton-not-answering",
        )


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None
