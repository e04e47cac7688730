"""`enginectl verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("verify")
def command(shell: Shell) -> Answer:
    """Recompute every digest in the registry and name each mismatch with both sides.

    Reads every byte and changes nothing. Exit 11 if anything does not match.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import size
    from engine_registry.errors import ExitCode
    from engine_registry.verify import verify

    shell.progress.phase("verify", shell.registry_url)
    report = verify(
        shell.registry,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    shell.close()
    document = {
        "ok": not report.mismatches,
        "files": report.files,
        "bytes": report.size_bytes,
        "mismatches": [
            {"name": m.name, "kind": m.kind, "expected": m.expected, "found": m.found}
            for m in report.mismatches
        ],
        "notes": list(report.notes),
    }

    def page(out: Page) -> None:
        count = f"{report.files} files, {size(report.size_bytes)}"
        if report.mismatches:
            out.verdict("failed", f"{len(report.mismatches)} mismatches in {count}")
        else:
            out.verdict("ok", f"every digest matches: {count}")
        for mismatch in report.mismatches:
            out.line(f"  {mismatch.kind}: {mismatch.name}")
            out.facts([("  want", mismatch.expected), ("  found", mismatch.found)])
        for note in report.notes:
            out.line(f"  note: {note}")

    code = ExitCode.INTEGRITY if report.mismatches else ExitCode.DONE
    return Answer(document=document, page=page, exit_code=code)
