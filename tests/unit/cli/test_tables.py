"""Tables at 100 columns: names that somebody copies stay whole, and nothing is cut."""

from __future__ import annotations

from engine_registry.refs import ProductRef

LONG = ProductRef("smollm2-135m-instruct", "cpu-x86-64-v3")
ACTOR = "somebody-with-a-long-name@department-of-engines.example"
WHY = "see incident 4711 in which the other release answered in capital letters for an hour"


def test_a_list_shows_products_whole_with_their_newest_engines_below(project):
    release = project.release("one", product=LONG)
    project.release("two")
    lines = project.run("list").out.splitlines()
    assert max(map(len, lines)) <= 100
    titles = [
        number for number, line in enumerate(lines) if line in (str(LONG), "tiny/cpu-x86-64-v3")
    ]
    assert len(titles) == 2
    head, row = lines[lines.index(str(LONG)) + 1 :][:2]
    assert head.split() == ["engine", "precision", "size", "built", "releases", "gates"]
    assert row.split()[0] == release.content.engine.short
    assert row.endswith("core passed")


def test_a_history_gives_its_room_to_what_happened_and_cuts_no_name(project, monkeypatch):
    monkeypatch.setenv("ENGINECTL_ACTOR", ACTOR)
    channel = "tiny/cpu-x86-64-v3/staging"
    assert project.run("promote", project.release("one").name, "--to", "staging").code == 0
    assert project.run("hold", channel, "--reason", WHY).code == 0
    out = project.run("history", channel).out
    assert "…" not in out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    by, details = lines[0].index("by"), lines[0].index("details")
    assert by - details > 40
    assert "".join(line[by:] for line in lines[1:]).replace(" ", "").count(ACTOR) == 2
    assert WHY in " ".join(" ".join(line[details:by] for line in lines).split())


def test_status_keeps_to_its_width_and_says_the_whole_reason(project, monkeypatch):
    monkeypatch.setenv("ENGINECTL_ACTOR", ACTOR)
    channel = "tiny/cpu-x86-64-v3/staging"
    assert project.run("promote", project.release("one").name, "--to", "staging").code == 0
    assert project.run("hold", channel, "--reason", WHY).code == 0
    out = project.run("status").out
    assert max(map(len, out.splitlines())) <= 100
    assert f"hold on {channel} by {ACTOR}: {WHY}" in " ".join(out.split())


def test_status_without_channels_names_the_first_step_that_there_is(project):
    assert project.run("status").code == 8  # no registry yet
    release = project.release("one")
    out = project.run("status").out
    assert f"next: `enginectl promote {release.name} --to staging`" in out
