"""Reads and writes a suite's `template.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.suite import TemplateGoldens
from engine_pipeline.gates.yaml_text import yaml_text
from engine_pipeline.whole_file import replace_whole
from engine_pipeline.yaml_file import validated
from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.gates.chat import Message

TEMPLATE_FILE = "template.yaml"
_HEAD = """\
# What each chat becomes after the chat template and the tokenizer; an engine that makes something
# else of it fails its gate. Written by `enginectl golden record`: change chats here, then record.
"""


def load_template(suite_dir: Path) -> TemplateGoldens | None:
    """The goldens of a suite; None if it has none; raises InvalidInput, naming line and key."""
    path = suite_dir / TEMPLATE_FILE
    return validated(path, TemplateGoldens) if path.is_file() else None


def write_template(suite_dir: Path, text: str) -> None:
    """Put the goldens beside the suite, whole or not at all.

    Raises:
        Unavailable: the file cannot be written.
    """
    path = suite_dir / TEMPLATE_FILE
    try:
        replace_whole(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="check the permissions of the suite's folder, then record again",
            reference="template-not-written",
        ) from error


def template_text(goldens: TemplateGoldens) -> str:
    """The file: YAML that differs line by line where the goldens do.

    Texts are JSON strings, which YAML reads alike; tokens stand sixteen to a line.
    """
    reference = goldens.reference
    lines = [
        _HEAD.rstrip(),
        "schema_version: 1",
        "reference:",
        f"  spec: {yaml_text(reference.spec)}",
    ]
    if reference.engine is not None:
        lines.append(f"  engine: {yaml_text(str(reference.engine))}")
    lines.append(f"  note: {yaml_text(reference.note)}")
    specials = goldens.special_tokens.items()
    lines.append("special_tokens:" if specials else "special_tokens: {}")
    lines += [f"  {yaml_text(text)}: {number}" for text, number in specials]
    lines.append("chats:")
    for chat in goldens.chats:
        lines += [f"  - id: {chat.id}", "    messages:"]
        for message in chat.messages:
            lines.append(f"      - {_message(message)}")
        if chat.tools:
            lines.append("    tools:")
            lines += [f"      - {yaml_text(tool)}" for tool in chat.tools]
        if chat.prompt is not None:
            lines.append(f"    prompt: {yaml_text(chat.prompt)}")
        lines.append("    tokens:")
        lines.append("      [")
        rows = [chat.tokens[at : at + 16] for at in range(0, len(chat.tokens), 16)]
        lines += [f"        {', '.join(map(str, row))}," for row in rows]
        lines.append("      ]")
    return "\n".join(lines) + "\n"


def _message(message: Message) -> str:
    if not message.tool_calls and message.tool_call_id is None:
        return f"{{role: {message.role}, content: {yaml_text(message.content)}}}"
    return yaml_text(message.model_dump(mode="json"))
