"""notifications.yaml: secrets are named and never written; what cannot be called is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_pipeline.notify.settings import Notifications
from engine_pipeline.tracking.facts import Fact, Kind
from engine_pipeline.yaml_file import InvalidDocument, validated
from engine_registry.errors import NotFound

FILE = """\
schema_version: 1
destinations:
  room:
    {line}
    events: [promoted, gc]
    products: ["llama-*/h100*"]
"""


def read(tmp_path: Path, line: str) -> Notifications:
    path = tmp_path / "notifications.yaml"
    path.write_text(FILE.replace("{line}", line))
    return validated(path, Notifications, reference="notifications-invalid")


def fact(kind: Kind, product: str | None) -> Fact:
    return Fact(id="x", kind=kind, at=datetime(2026, 3, 1, tzinfo=UTC), product=product, text="x")


def test_a_receiver_gets_what_it_asked_for(tmp_path):
    room = read(tmp_path, "url: https://chat.example/hook\n    secrets: [ROOM]").named("room")
    assert room.wants(fact(Kind.PROMOTED, "llama-3/h100-sxm"))
    assert not room.wants(fact(Kind.PROMOTED, "llama-3/a100"))
    assert not room.wants(fact(Kind.ROLLED_BACK, "llama-3/h100-sxm"))
    assert room.wants(fact(Kind.GC, None))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("secrets: [ROOM]", "either url or url_env"),
        ("url: https://a.example\n    url_env: ROOM_URL\n    secrets: [ROOM]", "either url or"),
        ("url: https://a.example", "needs `secrets"),
        ("url: https://a.example\n    signed: false\n    secrets: [ROOM]", "without secrets"),
        ("url: file:///etc/passwd\n    secrets: [ROOM]", "no http:// or https:// address"),
        ("url: gopher://a.example\n    secrets: [ROOM]", "no http:// or https:// address"),
        ("url: https://me:pw@a.example/\n    secrets: [ROOM]", "has a user name in it"),
        ("url: https://a.example/x?token=abc\n    secrets: [ROOM]", "seems to hold a secret"),
        ("url_env: 'ROOM URL'\n    secrets: [ROOM]", "url_env"),
        ("url_env: ROOM_URL\n    secrets: [ROOM]\n    timeout: 5m", "at most 60 s"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(tmp_path, line, says):
    with pytest.raises(InvalidDocument) as caught:
        read(tmp_path, line)
    assert says in " ".join(f"{p.path} {p.text}" for p in caught.value.problems)
    assert "pw@" not in str(caught.value)
    assert "token=abc" not in str(caught.value)


def test_an_unknown_receiver_names_those_there_are(tmp_path):
    settings = read(tmp_path, "url_env: ROOM_URL\n    secrets: [ROOM]")
    with pytest.raises(NotFound, match="there are room"):
        settings.named("rom")
