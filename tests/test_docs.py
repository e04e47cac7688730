"""Documents tell the truth: commands exist, help blocks are current, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from engine_pipeline.cli.app import VERBS, app
from engine_pipeline.cli.failures import _BROKEN_PIPE, _INTERRUPTED
from engine_pipeline.gates.suite import CaseFile, SuiteFile
from engine_pipeline.promote.policy import Policies
from engine_pipeline.yaml_file import parse_yaml, validate
from engine_registry.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "golden_prompts").rglob("*.md")),
]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HELP_BLOCK = re.compile(r"<!-- help: (enginectl[^>]*?) -->\n```text\n(.*?)```", re.DOTALL)


def commands_in(text: str) -> list[str]:
    """Every `enginectl …` command line in code blocks and back-quoted spans."""
    lines = []
    for block in re.findall(r"```(?:console|bash|sh)\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        lines += [line.removeprefix("$ ").strip() for line in joined.splitlines()]
    return [line for line in lines if line.startswith("enginectl ")]


def check_command(line: str) -> None:
    """Parse one command line with the real command's options, without running it."""
    words = shlex.split(re.split(r" [#|>] ", line, maxsplit=1)[0])[1:]
    if words[0].startswith("-"):
        return
    command = app.get_command(click.Context(app), words[0])
    assert command is not None, f"no such command: {line}"
    assert isinstance(command, click.Command)
    context = click.Context(command, info_name=words[0], resilient_parsing=False)
    parser = command.make_parser(context)
    try:
        values, _, _ = parser.parse_args(list(words[1:]))
    except click.UsageError as error:
        pytest.fail(f"{line}: {error.format_message()}")
    if "help" in values:
        return
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.required and values.get(parameter.name or "") in (None, ())
    ]
    assert not missing, f"{line}: {missing} missing"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_the_documents_parses(document):
    for line in commands_in(document.read_text()):
        check_command(line)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_in_the_workflows_parses(workflow):
    text = workflow.read_text()
    assert safe_yaml(text)["jobs"]
    for line in re.findall(r"(?:^|[\s(])(enginectl [^)|;\n]*)", text):
        check_command(line)


def safe_yaml(text: str) -> dict[str, Any]:
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(document):
    broken = []
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
        if not re.match(r"[a-z]+:", target) and not (document.parent / target).exists():
            broken.append(target)
    assert not broken


GATES = (ROOT / "docs" / "gates.md").read_text()
HEAD = "  - id: one\n    tags: [facts]\n    recorded: { text: Ten years., agreement: 1.0, n: 1 }\n"
HEAD += "    messages: [{ role: user, content: How long is a decade? }]\n"
GATE = "gates:\n  billing:\n    suite: billing\n    quality: { min_score: 0.9 }\n"
POLICIES = 'policies: [{ products: ["a/*"], channels: { prod: { gates: [billing] } } }]\n'
# How the first key of a snippet says what belongs before it, and after it.
AROUND = {
    "schema_version:": ("", "", SuiteFile),
    "cases:": ("", "", CaseFile),
    "- id:": ("cases:\n", "", CaseFile),
    "checks:": (f"cases:\n{HEAD}", "", CaseFile),
    "- {": (f"cases:\n{HEAD}    checks:\n", "", CaseFile),
    "gates:": ("schema_version: 1\n", POLICIES, Policies),
    "embeddings:": (f"schema_version: 1\n{GATE}", POLICIES, Policies),
    "under_load:": (f"schema_version: 1\n{GATE}", POLICIES, Policies),
    "judged_on:": (f"schema_version: 1\n{GATE}", POLICIES, Policies),
}


@pytest.mark.parametrize("snippet", re.findall(r"```yaml\n(.*?)```", GATES, re.DOTALL))
def test_every_snippet_of_the_gates_document_can_be_pasted(snippet):
    first = next(start for start in AROUND if snippet.lstrip().startswith(start))
    before, after, model = AROUND[first]
    whole = before + snippet + ("" if "policies:" in snippet else after)
    value, positions = parse_yaml(whole.encode(), "docs/gates.md")
    validate(value, positions, model, "docs/gates.md", reference="snippet")


def test_help_blocks_show_the_real_help():
    text = (ROOT / "README.md").read_text()
    blocks = HELP_BLOCK.findall(text)
    assert blocks
    for command, shown in blocks:
        assert shown == help_of(command)


def help_of(command: str) -> str:
    """What `enginectl … --help` prints at 100 columns."""
    words = command.removesuffix("--help").split()[1:]
    found: click.Command = app
    context = click.Context(
        app,
        info_name="enginectl",
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )
    for word in words:
        child = app.get_command(context, word)
        assert child is not None
        context = click.Context(child, info_name=word, parent=context)
        found = child
    return found.get_help(context) + "\n"


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text()
    table = text.split("| command | does |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z]+)`", table.replace("| ", "|")))
    assert set(VERBS) <= named


def test_the_readme_names_every_exit_code():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*?\| (\d*) \|", text, re.MULTILINE)
    named = {int(number) for row in rows for number in row if number}
    assert named == {int(code) for code in ExitCode}
    assert {str(_INTERRUPTED), str(_BROKEN_PIPE)} <= set(re.findall(r"\b1\d\d\b", text))


def test_decision_records_are_numbered_without_gaps_and_all_listed():
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert numbers == list(range(1, len(numbers) + 1))
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    assert not [path.name for path in records if path.name not in index]
