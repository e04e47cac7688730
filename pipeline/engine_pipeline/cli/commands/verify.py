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

    shell.progress.phase("verify", shell.registry_url)
    report = shell.registry.verify(lambda done, total: shell.progress.update(done, total, "bytes"))
    shell.close()
    document = {
        "ok": not report.problems,
        "files": report.files,
        "bytes": report.size_bytes,
        "problems": [
            {"name": p.name, "kind": p.kind, "expected": p.expected, "found": p.found}
            for p in report.problems
        ],
    }

    def page(out: Page) -> None:
        count = f"{report.files} files, {size(report.size_bytes)}"
        if not report.problems:
            out.verdict("ok", f"every digest matches: {count}")
            return
        out.verdict("failed", f"{len(report.problems)} problems in {count}")
        for problem in report.problems:
            out.line(f"  {problem.kind}: {problem.name}")
            out.facts([("  want", problem.expected), ("  found", problem.found)])

    code = ExitCode.INTEGRITY if report.problems else ExitCode.DONE
    return Answer(document=document, page=page, exit_code=code)
