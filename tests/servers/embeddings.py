"""An embedding server of known vectors, in a thread of this process.

A text without a vector of its own gets one that counts its words, so the same words point the same
way and other words another way.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WIDTH = 64


@dataclass
class Embeddings:
    """How the server answers, and what it was asked.

    Attributes:
        vectors: of texts that have one; anything that JSON can say.
        status: other than 200 comes with `words`.
        most_chars: of a text; longer ones are refused as llama.cpp's server does.
        raw: sent instead of an answer.
        api_key: without it everything is answered 401, and the wrong key is repeated.
        named: what it calls the model; None says nothing.
        asked: each request's body, in order.
        places: which number counts which word.
    """

    vectors: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    words: str = "not like this"
    most_chars: int | None = None
    raw: str | None = None
    api_key: str | None = None
    named: str | None = "words-64"
    asked: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and what is said."""
        text = body["input"]
        if self.most_chars is not None and len(text) > self.most_chars:
            return 500, {"error": {"message": "input is too large to process"}}
        if self.status != 200:
            return self.status, {"error": {"message": self.words}}
        vector = self.vectors[text] if text in self.vectors else self._counted(text)
        said = {"object": "list", "data": [{"index": 0, "embedding": vector}]}
        return 200, said if self.named is None else said | {"model": self.named}

    def _counted(self, text: str) -> list[float]:
        vector = [0.0] * WIDTH
        for word in re.findall(r"\w+", text.lower()):
            vector[self.places.setdefault(word, len(self.places))] += 1.0
        return vector


@contextmanager
def embeddings(server: Embeddings | None = None) -> Iterator[tuple[str, Embeddings]]:
    """Serve while the block runs: its base URL, and the server."""
    known = server or Embeddings()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            given = self.headers.get("Authorization", "")
            if self.path != "/v1/embeddings":
                status, said = 404, {"error": {"message": f"no {self.path}"}}
            elif known.api_key is not None and given != f"Bearer {known.api_key}":
                status, said = 401, {"error": {"message": f"wrong key {given}"}}
            else:
                known.asked.append(body)
                status, said = known.answer(body)
            data = (known.raw or json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=lambda: http.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}", known
        finally:
            http.shutdown()
            thread.join(20)
