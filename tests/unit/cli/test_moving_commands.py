"""transfer, export --archive, import, push and pull, as typed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_registry.registry import open_registry
from tests.servers.oci_registry import OciRegistry
from tests.unit.cli.conftest import PRODUCT, Project

ONE = f"{PRODUCT}:1"


@pytest.fixture
def server() -> Iterator[OciRegistry]:
    server = OciRegistry()
    yield server
    server.close()


def elsewhere(project: Project) -> str:
    return f"file://{project.root}/elsewhere"


def test_transfer_says_what_was_sent_and_how_to_promote_there(project: Project) -> None:
    release = project.release("a")
    ran = project.run("transfer", ONE, "--to", elsewhere(project))
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"ok release {ONE} is in {elsewhere(project)}\n")
    assert f"enginectl promote {ONE} --to CHANNEL --registry {elsewhere(project)}" in ran.out
    assert "channels are not copied" in ran.out
    there = open_registry(elsewhere(project))
    assert there.resolve(ONE).engine == release.content.engine
    again = project.run("transfer", ONE, "--to", elsewhere(project), as_json=True).json
    assert (again["step"], again["sent"]["blobs"]) == ("already-there", 0)


def test_a_transferred_release_passes_the_gates_it_passed_before(project: Project) -> None:
    project.release("a")
    project.run("transfer", ONE, "--to", elsewhere(project))
    ran = project.run("promote", ONE, "--to", "staging", "--registry", elsewhere(project))
    assert ran.code == 0, ran.err


def test_a_taken_number_is_a_conflict_with_a_way_out(project: Project) -> None:
    project.release("a")
    other = Project(project.root / "other", project.capsys)
    other.release("b", None)
    url = other.registry.url
    ran = project.run("transfer", ONE, "--to", url)
    assert ran.code == 7
    assert "error[release-number-taken]" in ran.err
    assert "--renumber" in ran.err
    ran = project.run("transfer", ONE, "--to", url, "--renumber")
    assert ran.code == 0
    assert f"release {PRODUCT}:2 is in" in ran.out
    assert f"was {ONE} where it comes from" in ran.out


def test_an_archive_goes_out_and_comes_in(project: Project) -> None:
    project.release("a")
    ran = project.run("export", ONE, "--archive", "one.tar")
    assert ran.code == 0, ran.err
    assert f"ok release {ONE} is in one.tar" in ran.out
    assert "enginectl import one.tar" in ran.out
    ran = project.run("import", "one.tar", "--registry", elsewhere(project))
    assert ran.code == 0, ran.err
    assert f"ok release {ONE} is in {elsewhere(project)}" in ran.out
    assert open_registry(elsewhere(project)).resolve(ONE).release is not None


def test_a_damaged_archive_is_one_line_and_exit_code_11(project: Project) -> None:
    project.release("a")
    project.run("export", ONE, "--archive", "one.tar")
    archive = project.root / "one.tar"
    archive.write_bytes(archive.read_bytes()[:20_000])
    ran = project.run("import", "one.tar", "--registry", elsewhere(project))
    assert ran.code == 11
    assert "error[archive-damaged]: archive:" in ran.err
    assert not (project.root / "elsewhere").exists()


def test_export_without_anything_to_write_is_a_usage_error(project: Project) -> None:
    project.release("a")
    assert project.run("export", ONE).code == 2


def test_push_and_pull_name_each_other(project: Project, server: OciRegistry) -> None:
    release = project.release("a")
    address = f"oci://{server.host}/team/engines"
    ran = project.run("push", ONE, f"{address}:prod")
    assert ran.code == 0, ran.err
    pull = f"{address}@{release.content.engine}"
    assert f"enginectl pull {pull}" in ran.out
    ran = project.run("pull", pull, "--registry", elsewhere(project))
    assert ran.code == 0, ran.err
    assert f"ok release {ONE} is in {elsewhere(project)}" in ran.out
    found = project.run(
        "pull", f"{address}:prod", "--registry", elsewhere(project), as_json=True
    ).json
    assert found["arrivals"][0]["step"] == "already-there"


def test_push_to_a_digest_is_a_usage_error(project: Project) -> None:
    release = project.release("a")
    assert project.run("push", ONE, f"oci://h.example/e@{release.content.engine}").code == 2


def test_pull_of_something_missing_is_not_found(project: Project, server: OciRegistry) -> None:
    ran = project.run("pull", f"oci://{server.host}/team/none:prod")
    assert ran.code == 8
    assert "error[oci-not-found]" in ran.err
