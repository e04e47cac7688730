"""`enginectl inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("inspect")
@click.argument("engine")
def command(shell: Shell, engine: str) -> Answer:
    """Read what an engine's files say about themselves, offline.

    ENGINE is a directory of engine files, or a digest, prefix, release or channel of the registry.
    """
    from engine_pipeline.cli.answer import Answer

    facts = _facts(shell, engine)
    document = {"engine": engine, "facts": facts.model_dump(mode="json")}

    def page(out: Page) -> None:
        _draw(out, facts)

    return Answer(document=document, page=page)


def _facts(shell: Shell, engine: str) -> EngineFacts:
    if Path(engine).is_dir():
        from engine_pipeline.backends.directory import kind_of_directory

        return shell.backend(kind_of_directory(Path(engine))).inspect(Path(engine))
    import tempfile

    from engine_pipeline.cli.lookup import latest_record

    digest = shell.registry.resolve_engine(engine)
    record = latest_record(shell.registry.engines.records(digest))
    with tempfile.TemporaryDirectory(prefix="enginectl-inspect-") as scratch:
        place = Path(scratch) / "engine"
        shell.registry.engines.materialise(digest, place)
        return shell.backend(record.kind).inspect(place)


def _draw(out: Page, facts: EngineFacts) -> None:
    from engine_pipeline.cli.render import size

    tensors = ", ".join(f"{n} × {kind}" for kind, n in sorted(facts.tensor_types.items()))
    out.facts(
        [
            ("kind", facts.kind),
            ("format", f"{facts.format} version {facts.format_version}"),
            ("architecture", facts.architecture),
            ("parameters", f"{facts.parameters / 1e6:.1f} million"),
            ("tensors", tensors),
            ("context", f"{facts.context_tokens} tokens" if facts.context_tokens else None),
            ("tokenizer", facts.tokenizer or "none in the file"),
            ("chat template", facts.chat_template or "none in the file"),
            *((name, value) for name, value in sorted(facts.runtime.items())),
            *((name, value) for name, value in sorted(facts.details.items())),
        ]
    )
    out.table(("file", "size"), [(f.path, size(f.size_bytes)) for f in facts.files])
