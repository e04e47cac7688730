"""A webhook against a receiver that answers, fails, hangs, drips, resets and redirects."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.notify.settings import WebhookSettings
from engine_pipeline.notify.webhook import Webhook
from engine_pipeline.tracking.facts import Fact, Kind
from engine_pipeline.tracking.http import retry_after
from engine_pipeline.tracking.port import NotSent, Sent
from engine_registry.record import Actor
from tests.servers.receiver import Receiver, answer, drip, hang, receiving, reset

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "a-secret-that-is-long-enough-to-use"
FACT = Fact(
    id="event/tiny/cpu/prod/3/0123456789ab",
    kind=Kind.ROLLED_BACK,
    at=NOW,
    product="tiny/cpu",
    channel="tiny/cpu/prod",
    release="tiny/cpu:1",
    actor=Actor(name="alice", proved_by="os-user"),
    text="tiny/cpu/prod was rolled back to release 1, by alice: answers in Latin",
    details={"event": 3},
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def webhook(url: str, timeout: timedelta = timedelta(seconds=30)) -> Webhook:
    settings = WebhookSettings(
        url_env="ROOM_URL", secrets=("ROOM_SECRET",), events=(Kind.ROLLED_BACK,), timeout=timeout
    )
    environment = {"ROOM_URL": url, "ROOM_SECRET": SECRET}
    return Webhook(
        "room", settings, environment, lambda: NOW, registry="file:///srv/engines", version="1"
    )


def send(hook: Webhook) -> Sent | NotSent:
    return hook.deliver(FACT, delivery="d-1", attempt=2)


def test_a_call_says_what_happened_and_is_signed_over_exactly_its_bytes(receiver):
    assert isinstance(send(webhook(receiver.url)), Sent)
    (call,) = receiver.calls
    assert call.json["event"] == "rolled-back"
    assert call.json["registry"] == "file:///srv/engines"
    assert call.json["text"] == FACT.text
    assert call.json["actor"] == {"name": "alice", "proved_by": "os-user"}
    assert call.headers["x-enginectl-attempt"] == "2"
    text = f"d-1.{int(NOW.timestamp())}.".encode() + call.body
    made = hmac.new(SECRET.encode(), text, hashlib.sha256).digest()
    assert call.headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"


@pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503])
def test_every_other_answer_is_no_success_and_says_what_came(receiver, status):
    receiver.answers.append(answer(status, "no\x00t  now\n"))
    result = send(webhook(receiver.url))
    assert isinstance(result, NotSent)
    assert f"{status}: no t now" in result.detail
    assert not result.is_final


def test_retry_after_is_read(receiver):
    receiver.answers.append(answer(429, retry_after="7"))
    result = send(webhook(receiver.url))
    assert isinstance(result, NotSent)
    assert result.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("value", "span"),
    [
        ("120", timedelta(seconds=120)),
        ("Sun, 01 Mar 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta(0)),
        ("9" * 400, timedelta(days=30)),
        ("soon", None),
        ("-1", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_every_form(value, span):
    assert retry_after(value, NOW) == span


@pytest.mark.parametrize("behaviour", [hang, drip], ids=["hangs", "drips"])
def test_a_receiver_that_never_finishes_is_left_at_the_deadline(receiver, behaviour):
    receiver.answers.append(behaviour)
    began = time.monotonic()
    result = send(webhook(receiver.url, timeout=timedelta(seconds=1)))
    assert isinstance(result, NotSent)
    assert "no whole answer within 1 s" in result.detail
    assert time.monotonic() - began < 20


def test_a_name_look_up_that_hangs_is_left_at_the_deadline(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: release.wait())
    result = send(webhook("http://receiver.test/hook", timeout=timedelta(seconds=1)))
    release.set()
    assert isinstance(result, NotSent)
    assert "no whole answer within 1 s" in result.detail


def test_a_proxy_of_the_environment_is_used(receiver, monkeypatch):
    monkeypatch.setenv("http_proxy", receiver.url.removesuffix("/hook"))
    assert isinstance(send(webhook("http://receiver.test/hook")), Sent)
    assert receiver.calls[0].path == "http://receiver.test/hook"


def test_what_netrc_holds_for_a_host_is_not_sent_to_it(receiver, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password swordfish\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert isinstance(send(webhook(receiver.url)), Sent)
    assert "authorization" not in receiver.calls[0].headers


def test_a_cut_connection_is_no_success(receiver):
    receiver.answers.append(reset)
    assert isinstance(send(webhook(receiver.url)), NotSent)


def test_a_redirect_is_not_followed_anywhere(receiver):
    with receiving() as other:
        receiver.answers.append(answer(307, location=f"{other.url}?x=1"))
        result = send(webhook(receiver.url))
        assert isinstance(result, NotSent)
        assert "redirects are not followed" in result.detail
        assert other.calls == []


def test_nobody_listening_is_no_success_and_the_path_is_not_shown(receiver):
    url = receiver.url.replace("/hook", "/services/T0/B0/very-secret-path")
    receiver.answers.append(answer(500, f"bad {url}"))
    shown = [send(webhook(url)), send(webhook("http://127.0.0.1:9/services/very-secret-path"))]
    assert all(isinstance(result, NotSent) for result in shown)
    assert "very-secret-path" not in str(shown)
    assert "very-secret-path" not in webhook(url).place


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"ROOM_SECRET": SECRET}, "ROOM_URL (url_env) is not set"),
        ({"ROOM_URL": "http://127.0.0.1:9"}, "ROOM_SECRET (secrets) is not set"),
        ({"ROOM_URL": "ftp://a.example", "ROOM_SECRET": SECRET}, "no http:// or https://"),
        ({"ROOM_URL": "http://127.0.0.1:9", "ROOM_SECRET": "tiny-one"}, "8 bytes long"),
    ],
)
def test_a_missing_or_unusable_variable_is_named_and_nothing_is_sent(variables, says):
    hook = webhook("")
    hook._environment = variables
    result = send(hook)
    assert isinstance(result, NotSent)
    assert result.is_final
    assert says in result.detail
    assert "tiny-one" not in result.detail
