"""The real huggingface_hub client against a hub on loopback."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.sources import hub_cache
from engine_pipeline.sources.hub import HubSource
from engine_pipeline.sources.hub_client import HubClient
from engine_pipeline.sources.port import Purpose, Wanted
from engine_pipeline.spec.lock import LockedSource
from engine_registry.errors import (
    EngineCIError,
    ExitCode,
    IntegrityError,
    InvalidInput,
    NotFound,
    Unavailable,
)
from tests.servers.hub import Fault, HubServer, Repo

TOKEN = "hf_PlantedTokenThatMustNeverBeSeen0123456789"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b'{"model": {"type": "BPE"}}',
    "model.safetensors": b"weights " * 20_000,
    "README.md": b"# a model",
}
MODEL = "hf://org/model"


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.tokens.add(TOKEN)
        yield server


@pytest.fixture
def repo(hub: HubServer) -> Repo:
    repo = hub.repo("org/model")
    repo.commit("main", FILES)
    return repo


@pytest.fixture(autouse=True)
def library_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own pauses between tries take no time; its behaviour stays."""
    quick = SimpleNamespace(sleep=lambda _: None, time=time.time, monotonic=time.monotonic)
    for module in ("file_download", "utils._http"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", quick)


@pytest.fixture
def source(hub: HubServer, tmp_path: Path) -> Callable[..., HubSource]:
    def make(
        *, token: str | None = None, attempts: int = 3, cache: str = "cache", timeout_s: float = 5
    ) -> HubSource:
        return HubSource(
            HubClient(
                endpoint=hub.url,
                cache_dir=tmp_path / cache,
                token=token,
                attempts=attempts,
                timeout_s=timeout_s,
                sleep=lambda _: None,
            )
        )

    return make


def locked(source: HubSource, **wanted: object) -> LockedSource:
    options = {"uri": MODEL, "revision": "main", **wanted}
    return source.resolve(Wanted(**options), Silent())  # type: ignore[arg-type]


def fetched(source: HubSource, lock: LockedSource, into: Path) -> dict[str, bytes]:
    into.mkdir(exist_ok=True)
    source.fetch(lock, into, Silent())
    return {
        path.relative_to(into).as_posix(): path.read_bytes()
        for path in into.rglob("*")
        if path.is_file()
    }


# Locking


def test_a_branch_is_pinned_to_its_commit_and_every_file_to_its_digest(source, repo):
    lock = locked(source())
    assert lock.revision == repo.refs["main"]
    assert {f.path: (f.size_bytes, f.digest.hex) for f in lock.files} == {
        path: (len(data), hashlib.sha256(data).hexdigest())
        for path, data in FILES.items()
        if path != "README.md"
    }


def test_large_files_are_pinned_without_downloading_them(source, repo, hub):
    locked(source())
    assert not hub.requests("/cdn/")


def test_a_tag_and_a_commit_are_accepted_as_revision(source, repo):
    old = repo.commit("v1", {**FILES, "config.json": b"{}"})
    assert locked(source(), revision="v1").revision == old
    assert locked(source(), revision=old).revision == old


def test_a_branch_that_moves_after_locking_changes_nothing_that_is_fetched(source, repo, tmp_path):
    lock = locked(source())
    repo.commit("main", {**FILES, "model.safetensors": b"poisoned" * 20_000})
    files = fetched(source(cache="other"), lock, tmp_path / "out")
    assert files["model.safetensors"] == FILES["model.safetensors"]


def test_a_hub_that_answers_an_unknown_commit_with_its_default_branch_is_refused(source, repo, hub):
    hub.unfaithful = True
    with pytest.raises(IntegrityError) as caught:
        locked(source(), revision="0" * 40)
    assert caught.value.name == "hub-wrong-commit"
    assert repo.refs["main"] in caught.value.message


def test_data_sets_are_a_kind_of_repository_of_their_own(source, hub):
    data = {"train.jsonl": b'{"text": "a"}\n', "README.md": b"#"}
    commit = hub.repo("org/data", kind="dataset").commit("main", data)
    lock = locked(source(), uri="hf://datasets/org/data", purpose=Purpose.CALIBRATION)
    assert lock.revision == commit
    assert [f.path for f in lock.files] == ["train.jsonl"]


def test_code_in_a_repository_is_refused_until_the_spec_opts_in_at_a_commit(source, hub):
    repo = hub.repo("org/model")
    commit = repo.commit("main", {**FILES, "modeling_x.py": b"import os"})
    for options, reference in (
        ({}, "code-refused"),
        ({"revision": commit}, "code-refused"),
        ({"allow_code": True}, "code-not-pinned"),
    ):
        with pytest.raises(InvalidInput) as caught:
            locked(source(), **options)
        assert caught.value.name == reference
        assert "modeling_x.py" in caught.value.message
    lock = locked(source(), revision=commit, allow_code=True)
    digests = {f.path: f.digest.hex for f in lock.files}
    assert digests["modeling_x.py"] == hashlib.sha256(b"import os").hexdigest()


def test_a_repository_with_pickle_weights_alone_is_refused_by_name(source, hub):
    hub.repo("org/model").commit("main", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(InvalidInput) as caught:
        locked(source())
    assert caught.value.name == "pickle-weights-refused"
    assert "pytorch_model.bin" in caught.value.message


# Five ways to be refused, and their neighbours


def refused(source: HubSource, **wanted: object) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        locked(source, **wanted)
    return caught.value


def test_no_token_is_told_from_a_bad_one_a_licence_a_missing_repo_and_a_missing_revision(
    source, hub, repo
):
    hub.repo("org/private", private=True).commit("main", FILES)
    hub.repo("org/gated", gated=True).commit("main", FILES)
    bad = "hf_NobodyKnowsThisTokenAtAll0123456789"
    found = {
        (error.name, type(error))
        for error in (
            refused(source(), uri="hf://org/private"),
            refused(source(token=bad), uri="hf://org/private"),
            refused(source(token=TOKEN), uri="hf://org/gated"),
            refused(source(token=TOKEN), uri="hf://org/nothing"),
            refused(source(token=TOKEN), revision="no-such-branch"),
        )
    }
    assert found == {
        ("hub-no-token", InvalidInput),
        ("hub-bad-token", InvalidInput),
        ("hub-licence-not-accepted", InvalidInput),
        ("hub-repo-missing", NotFound),
        ("hub-revision-missing", NotFound),
    }


def test_a_gated_repository_without_a_token_asks_for_one(source, hub):
    hub.repo("org/gated", gated=True).commit("main", FILES)
    assert refused(source(), uri="hf://org/gated").name == "hub-no-token"


def test_a_gated_repository_of_large_files_alone_is_found_out_when_locking(source, hub):
    hub.repo("org/gated", gated=True).commit("main", {"model.gguf": b"GGUF" * 100})
    assert refused(source(token=TOKEN), uri="hf://org/gated").name == "hub-licence-not-accepted"
    assert not hub.requests("/cdn/")


def test_an_accepted_licence_opens_a_gated_repository(source, hub, tmp_path):
    hub.repo("org/gated", gated=True, accepted_by={TOKEN}).commit("main", FILES)
    opened = source(token=TOKEN)
    lock = locked(opened, uri="hf://org/gated")
    assert fetched(opened, lock, tmp_path / "out")["config.json"] == FILES["config.json"]


@pytest.mark.parametrize(
    ("uri", "revision", "reference"),
    [
        ("hf://org/nothing", "main", "hub-repo-missing"),
        (MODEL, "no-such-branch", "hub-revision-missing"),
    ],
)
def test_a_hub_without_error_codes_still_gets_the_right_name_for_what_is_missing(
    source, hub, repo, uri, revision, reference
):
    hub.codes = False
    error = refused(source(token=TOKEN), uri=uri, revision=revision)
    assert error.name == reference


def test_a_forbidden_answer_shows_what_the_hub_says(source, hub, repo):
    hub.faults.append(
        Fault("status", "/api/models", status=403, headers={"X-Error-Message": "only from the lab"})
    )
    error = refused(source(token=TOKEN))
    assert error.name == "hub-forbidden"
    assert "only from the lab" in error.message


# Trouble on the way


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_hub_that_fails_twice_and_then_answers_is_no_failure(source, hub, repo, status):
    hub.faults.append(Fault("status", "/api/models", status=status, times=2))
    assert locked(source(attempts=3)).revision == repo.refs["main"]
    assert len(hub.requests("/api/models")) == 3


@pytest.mark.parametrize(("status", "reference"), [(429, "hub-rate-limited"), (503, "hub-failing")])
def test_a_hub_that_keeps_failing_is_unavailable_and_safe_to_ask_again(
    source, hub, repo, status, reference
):
    hub.faults.append(Fault("status", "/api/models", status=status, times=100))
    error = refused(source(attempts=3))
    assert (error.name, error.exit_code) == (reference, ExitCode.UNAVAILABLE)
    assert len(hub.requests("/api/models")) == 3


def test_the_wait_that_a_rate_limit_asks_for_is_kept(hub, repo, tmp_path):
    waits: list[float] = []
    client = HubClient(endpoint=hub.url, cache_dir=tmp_path, sleep=waits.append)
    hub.faults.append(
        Fault("status", "/api/models", status=429, headers={"Retry-After": "17"}, times=1)
    )
    hub.faults.append(
        Fault("status", "/api/models", status=429, headers={"ratelimit": '"api";r=0;t=55'})
    )
    locked(HubSource(client))
    assert waits == [17, 55]


def test_a_rate_limit_of_hours_ends_the_command_and_says_when_to_come_back(source, hub, repo):
    hub.faults.append(
        Fault("status", "/api/models", status=429, headers={"Retry-After": "7200"}, times=9)
    )
    error = refused(source(attempts=3))
    assert error.name == "hub-rate-limited"
    assert "7200 s" in error.hint
    assert len(hub.requests("/api/models")) == 1


def test_waits_between_tries_grow(hub, repo, tmp_path):
    waits: list[float] = []
    hub.faults.append(Fault("status", "/api/models", times=3))
    locked(HubSource(HubClient(endpoint=hub.url, cache_dir=tmp_path, sleep=waits.append)))
    assert waits == [1, 2, 4]


def test_a_hub_that_does_not_answer_in_time_is_unavailable(source, hub, repo):
    hub.faults.append(Fault("stall", "/api/models", times=9))
    error = refused(source(attempts=2, timeout_s=0.1))
    assert (error.name, error.exit_code) == ("hub-timeout", ExitCode.UNAVAILABLE)


def test_a_hub_that_is_not_there_is_unavailable(tmp_path):
    client = HubClient(
        endpoint="http://127.0.0.1:9", cache_dir=tmp_path, attempts=2, sleep=lambda _: None
    )
    error = refused(HubSource(client))
    assert (error.name, error.exit_code) == ("hub-unreachable", ExitCode.UNAVAILABLE)


def test_a_download_that_stalls_goes_on_where_it_stopped(source, hub, repo, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 4096)
    lock = locked(source())
    hub.faults.append(Fault("truncate", "/cdn/"))
    hub.faults.append(Fault("stall", "/cdn/"))
    assert (
        fetched(source(), lock, tmp_path / "out")["model.safetensors"]
        == (FILES["model.safetensors"])
    )
    assert any(seen.range for seen in hub.requests("/cdn/"))


def test_a_partial_download_that_the_hub_refuses_to_continue_starts_again(
    source, hub, repo, tmp_path, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 4096)
    lock = locked(source())
    hub.faults.append(Fault("truncate", "/cdn/"))
    hub.faults.append(Fault("status", "/cdn/", status=416))
    files = fetched(source(), lock, tmp_path / "out")
    assert files["model.safetensors"] == FILES["model.safetensors"]
    assert [seen.range is not None for seen in hub.requests("/cdn/")] == [False, True, False]


def test_a_download_that_always_breaks_off_is_unavailable_and_leaves_nothing(
    source, hub, repo, tmp_path
):
    lock = locked(source())
    hub.faults.append(Fault("status", "/cdn/", status=416, times=100))
    with pytest.raises(Unavailable) as caught:
        fetched(source(), lock, tmp_path / "out")
    assert caught.value.name == "hub-transfer-broken"
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert not list((tmp_path / "cache").rglob("*.incomplete"))


# Bytes


def test_wrong_bytes_of_the_right_size_are_fetched_once_more(source, hub, repo, tmp_path):
    lock = locked(source())
    hub.faults.append(Fault("wrong", "/cdn/"))
    assert (
        fetched(source(), lock, tmp_path / "out")["model.safetensors"]
        == (FILES["model.safetensors"])
    )
    assert len(hub.requests("/cdn/", "GET")) == 2


def test_bytes_that_stay_wrong_are_refused_and_leave_cache_and_output(source, hub, repo, tmp_path):
    lock = locked(source())
    hub.faults.append(Fault("wrong", "/cdn/", times=100))
    with pytest.raises(IntegrityError) as caught:
        fetched(source(), lock, tmp_path / "out")
    wrong = bytes(byte ^ 1 for byte in FILES["model.safetensors"])
    assert caught.value.name == "hub-wrong-bytes"
    assert caught.value.exit_code == ExitCode.INTEGRITY
    for data in (FILES["model.safetensors"], wrong):
        assert hashlib.sha256(data).hexdigest() in caught.value.message
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.read_bytes() == wrong]


def test_a_damaged_file_in_the_cache_is_replaced(source, hub, repo, tmp_path):
    lock = locked(source())
    fetched(source(), lock, tmp_path / "out")
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file() and path.read_bytes() == FILES["model.safetensors"]:
            blob = path.resolve()
    blob.write_bytes(b"W" + FILES["model.safetensors"][1:])
    assert (
        fetched(source(), lock, tmp_path / "again")["model.safetensors"]
        == (FILES["model.safetensors"])
    )
    assert blob.read_bytes() == FILES["model.safetensors"]


def test_a_damaged_file_does_not_stay_in_the_cache_when_the_hub_is_down(
    source, hub, repo, tmp_path
):
    lock = locked(source())
    fetched(source(), lock, tmp_path / "out")
    path = source().local_path(lock, lock.files[1], Silent())
    blob = path.resolve()
    blob.write_bytes(b"W" + FILES["model.safetensors"][1:])
    hub.faults.append(Fault("status", "model.safetensors", method="HEAD", times=100))
    with pytest.raises(Unavailable):
        fetched(source(), lock, tmp_path / "again")
    assert not path.exists()
    assert not blob.exists()


def test_a_small_file_that_is_not_the_committed_one_is_refused_when_locking(source, hub, repo):
    hub.faults.append(Fault("wrong", "config.json", times=100))
    error = refused(source())
    assert error.name == "hub-wrong-bytes"


def test_a_changed_lock_is_not_satisfied_by_what_the_commit_holds(source, repo, tmp_path):
    lock = locked(source())
    first = lock.files[0].model_copy(update={"size_bytes": lock.files[0].size_bytes + 1})
    forged = lock.model_copy(update={"files": (first, *lock.files[1:])})
    with pytest.raises(IntegrityError):
        fetched(source(), forged, tmp_path / "out")


def test_a_second_fetch_asks_the_hub_for_nothing(source, hub, repo, tmp_path):
    lock = locked(source())
    fetched(source(), lock, tmp_path / "out")
    hub.seen.clear()
    fetched(source(), lock, tmp_path / "again")
    assert not hub.seen


def test_fetching_into_a_directory_again_finishes_it(source, repo, tmp_path):
    lock = locked(source())
    first = fetched(source(), lock, tmp_path / "out")
    (tmp_path / "out" / "config.json").unlink()
    (tmp_path / "out" / ".model.safetensors.part").write_bytes(b"left by a killed run")
    assert fetched(source(), lock, tmp_path / "out") == first


# One at a time


def test_a_second_downloader_waits_and_then_finds_everything_cached(source, hub, repo, tmp_path):
    lock = locked(source())
    notes: list[str] = []
    waiting = threading.Event()

    class Listener(Silent):
        def note(self, text: str) -> None:
            notes.append(text)
            waiting.set()

    name = f"model--org--model--{lock.revision}"
    into = tmp_path / "second"
    into.mkdir()
    second = threading.Thread(target=source().fetch, args=(lock, into, Listener()))
    with hub_cache.turn(tmp_path / "cache", name, Silent()):
        second.start()
        assert waiting.wait(10)
        # What this process downloads while it holds the lock is what the other one will find.
        source()._client.download(
            hub_repo("org/model"), lock.revision, "model.safetensors", lambda _: None
        )
    second.join(10)
    assert (into / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert len(hub.requests("/cdn/", "GET")) == 1
    assert len(notes) == 1


def hub_repo(name: str):
    from engine_pipeline.sources.hub_client import Repo as RepoName

    return RepoName(id=name, type="model")


# Secrets


def test_a_token_goes_to_the_hub_and_nowhere_else(source, hub, repo, tmp_path):
    opened = source(token=TOKEN)
    lock = locked(opened)
    fetched(opened, lock, tmp_path / "out")
    assert all(seen.token == TOKEN for seen in hub.seen if seen.host.startswith("127.0.0.1"))
    elsewhere = [seen for seen in hub.seen if seen.host.startswith("localhost")]
    assert elsewhere
    assert not any(seen.token for seen in elsewhere)
    assert TOKEN not in lock.model_dump_json()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 429, 500])
def test_a_token_that_the_server_echoes_is_in_no_message_and_no_log(
    source, hub, repo, caplog, capfd, status
):
    hub.faults.append(
        Fault(
            "status",
            "/api/models",
            status=status,
            times=100,
            headers={"X-Error-Message": f"Bearer {TOKEN} is not welcome"},
            body=b'{"error": "token ' + TOKEN.encode() + b'"}',
        )
    )
    with caplog.at_level(logging.DEBUG, logger="huggingface_hub"):
        error = refused(source(token=TOKEN))
    shown = capfd.readouterr()
    assert error.name != "unexpected"
    assert TOKEN not in f"{error.message} {error.hint} {error!r} {error.__cause__!r}"
    assert TOKEN not in shown.out + shown.err
