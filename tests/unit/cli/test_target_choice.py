"""Which target a command line means, and what it says when it means none."""

from __future__ import annotations

import pytest

PROD = "tiny/cpu-x86-64-v3/prod"


@pytest.mark.parametrize("verb", ["deploy", "drift"])
@pytest.mark.parametrize("options", [(), ("--target", "h100-a"), ("--targets", "no/targets.yaml")])
def test_without_targets_yaml_it_is_said_how_to_go_on(project, verb, options):
    project.release("one")
    ran = project.run(verb, PROD, *options)
    assert ran.code == 8
    first, second = ran.err.splitlines()
    assert first.startswith("error[targets-missing]: no targets: ")
    assert first.endswith("targets.yaml does not exist")
    assert "docs/deploy.md" in second
    assert f"`enginectl deploy {PROD} --target directory:/DIR`" in second


@pytest.mark.parametrize("verb", ["deploy", "drift"])
@pytest.mark.parametrize("target", ["", "bogus:/x", "triton:http://h:8000"])
def test_a_target_of_no_known_kind_names_those_that_there_are(project, verb, target):
    ran = project.run(verb, PROD, "--target", target)
    assert ran.code == 2
    assert f"error[target-invalid]: target {target!r}: neither a name" in ran.err
    assert "the kinds are directory, triton" in ran.err
    assert "--target directory:/DIR" in ran.err
