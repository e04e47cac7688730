"""`enginectl diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("diff")
@click.argument("left")
@click.argument("right")
def command(shell: Shell, left: str, right: str) -> Answer:
    """What differs between two releases, engines or channels, inputs first.

    LEFT and RIGHT are digests, unique prefixes, MODEL/TARGET:N or MODEL/TARGET/CHANNEL.
    """
    from engine_pipeline.cli.answer import Answer

    both = [_facts(shell, text) for text in (left, right)]
    names = list(dict.fromkeys([*both[0], *both[1]]))
    rows = [(n, both[0].get(n, "-"), both[1].get(n, "-")) for n in names]
    changed = [row for row in rows if row[1] != row[2]]
    document = {
        "left": left,
        "right": right,
        "changed": [{"what": w, "left": a, "right": b} for w, a, b in changed],
        "same": [w for w, a, b in rows if a == b],
    }

    def page(out: Page) -> None:
        if not changed:
            out.line(f"{left} and {right} are the same")
            return
        out.table(("what", left, right), changed)
        out.line(f"{len(rows) - len(changed)} other facts are the same")

    return Answer(document=document, page=page)


def _facts(shell: Shell, text: str) -> dict[str, str]:
    """Everything comparable of an engine or release, flat, as words."""
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.cli.render import size
    from engine_pipeline.promote.release import lock_of
    from engine_pipeline.spec.lock import build_inputs

    found = shell.registry.resolve(text)
    stored = shell.registry.engines.engine(found.engine)
    record = latest_record(stored.records)
    facts: dict[str, str] = {"engine": found.engine.short, "build key": record.build_key.short}
    if found.release is not None:
        content = found.release.content
        facts = {"release": found.release.name, **facts}
        facts["serving image"] = content.serving_image
        facts["tokenizer"] = content.tokenizer.short
        facts |= _flat("runtime", content.runtime_config)
    inputs = build_inputs(lock_of(shell.registry, record), {})
    facts |= _flat("", inputs)
    for layer in stored.manifest.layers:
        facts[f"file {layer.title}"] = f"{layer.digest.short} ({size(layer.size)})"
    return facts


def _flat(prefix: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for name in sorted(value):
            found |= _flat(f"{prefix}.{name}" if prefix else str(name), value[name])
        return found
    if isinstance(value, list) and value and isinstance(value[0], dict) and "path" in value[0]:
        return {f"{prefix} {item['path']}": str(item.get("digest", item))[:19] for item in value}
    return {prefix: ", ".join(map(str, value)) if isinstance(value, list) else str(value)}
