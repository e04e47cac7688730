"""Endpoints that somebody else runs: asked what they serve before anything is judged."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from engine_pipeline.gates.external import external, key_of
from engine_registry.errors import InvalidInput, Unavailable

MODELS = {"object": "list", "data": [{"id": "llama"}, {"id": "mistral"}]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.keys.append(self.headers.get("Authorization"))
        status, body = self.server.answers.get(self.path, (404, "{}"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        running.keys = []
        running.answers = {"/v1/models": (200, json.dumps(MODELS))}
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint_that_serves_the_model_is_taken_as_it_is(server, suffix):
    endpoint = external(url(server) + suffix, "llama", api_key="s3cret")
    assert endpoint.base_url == url(server)
    assert endpoint.model == "llama"
    assert server.keys == ["Bearer s3cret"]


def test_another_model_is_refused_with_those_that_are_served(server):
    with pytest.raises(InvalidInput, match="serves llama, mistral, not 'qwen'"):
        external(url(server), "qwen")


def test_a_gateway_without_a_list_of_models_is_taken_at_its_word(server):
    server.answers = {}
    assert external(url(server), "qwen").model == "qwen"


def test_a_long_list_of_models_is_told_shortly(server):
    many = {"data": [{"id": f"model-{n:03}"} for n in range(300)]}
    server.answers = {"/v1/models": (200, json.dumps(many))}
    with pytest.raises(InvalidInput, match="model-009 and 290 more, not 'qwen'"):
        external(url(server), "qwen")


@pytest.mark.parametrize("value", [None, "", "  ", "short", "with\nbreak-012", "ключ-ключ-ключ"])
def test_a_key_is_read_from_the_environment_and_never_shown(value):
    environment = {} if value is None else {"THE_KEY": value}
    with pytest.raises(InvalidInput) as caught:
        key_of("THE_KEY", environment)
    assert "THE_KEY" in caught.value.message
    if value and value.strip():
        assert value not in caught.value.message
    assert key_of("THE_KEY", {"THE_KEY": " sk-0123456789 "}) == "sk-0123456789"
    assert key_of(None, {}) is None


@pytest.mark.parametrize(
    "answer", [(503, "{}"), (200, "<html>"), (200, "[]"), (200, '{"data": 1}')]
)
def test_an_endpoint_that_is_not_one_is_unavailable(server, answer):
    server.answers = {"/v1/models": answer}
    with pytest.raises(Unavailable, match="/v1/models"):
        external(url(server), "llama")


def test_an_endpoint_that_is_not_there_is_unavailable(server):
    with pytest.raises(Unavailable, match="no answer"):
        external("http://127.0.0.1:1", "llama")


@pytest.mark.parametrize("address", ["ftp://x", "localhost:8000", "http://", "http://me:s3cret@x"])
def test_what_is_no_address_is_refused_without_showing_a_password(address):
    with pytest.raises(InvalidInput) as caught:
        external(address, "llama")
    assert "s3cret" not in caught.value.message
