"""`enginectl list`, as typed."""

from engine_pipeline.gates.outcome import Outcome


def test_list_shows_engines_with_releases_and_gates(project):
    passed = project.release("one")
    project.release("two", outcome=Outcome.FAILED)
    ran = project.run("list")
    assert ran.code == 0
    assert "core passed" in ran.out
    assert "core failed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100
    document = project.run("list", "--outcome", "passed", as_json=True).json
    assert document["total"] == 1
    (engine,) = document["engines"]
    assert engine["engine"] == str(passed.content.engine)
    assert engine["releases"] == [passed.number]
    assert engine["gates"] == {"core": "passed"}


def test_list_finds_by_prefix_and_says_when_nothing_fits(project):
    release = project.release("one")
    prefix = release.content.engine.hex[:10]
    assert project.run("list", prefix, as_json=True).json["total"] == 1
    ran = project.run("list", "--product", "nothing/*")
    assert ran.code == 0
    assert ran.out.startswith("no engine in ")


def test_list_of_a_missing_registry_is_not_found(project):
    ran = project.run("list")
    assert ran.code == 8
    assert "no registry" in ran.err or "registry-missing" in ran.err
