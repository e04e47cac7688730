"""`enginectl verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.findings import Finding
    from engine_registry.digest import Digest
    from engine_registry.mismatch import Mismatch


@verb("verify")
@click.option(
    "--policy",
    "name",
    metavar="NAME",
    help="Check a release, or what is live on a channel, against channels.yaml instead.",
)
def command(shell: Shell, name: str | None) -> Answer:
    """Recompute every digest in the registry and name each mismatch with both sides.

    Reads every byte and changes nothing. Exit 11 if anything does not match.

    With --policy MODEL/TARGET:N or MODEL/TARGET/CHANNEL: the bytes, reports and signatures of one
    release, one line for each thing that a channel requires. Needs the registry and channels.yaml
    alone. Exit 5 if something is missing, 11 if bytes or a signature are wrong.
    """
    return _everything(shell) if name is None else _required(shell, name)


def _everything(shell: Shell) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import size
    from engine_registry.affected import affected
    from engine_registry.errors import ExitCode
    from engine_registry.verify import verify

    shell.progress.phase("verify", shell.registry_url)
    report = verify(
        shell.registry,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    concerned = affected(shell.registry, report.mismatches) if report.mismatches else []
    shell.close()
    document = {
        "ok": not report.mismatches,
        "files": report.files,
        "bytes": report.size_bytes,
        "mismatches": [_row(mismatch) for mismatch in report.mismatches],
        "affected": [
            {
                "engine": str(one.engine),
                "releases": [str(ref) for ref in one.releases],
                "live": [str(channel) for channel in one.live],
            }
            for one in concerned
        ],
        "notes": [_row(note) for note in report.notes],
    }

    def page(out: Page) -> None:
        count = f"{report.files} files, {size(report.size_bytes)}"
        if report.mismatches:
            wrong = len(report.mismatches)
            out.verdict(
                "failed", f"{wrong} {'mismatch' if wrong == 1 else 'mismatches'} in {count}"
            )
        else:
            out.verdict("ok", f"every digest matches: {count}")
        for mismatch in report.mismatches:
            out.line(f"  {mismatch.kind}: {mismatch.name}")
            out.facts([("  want", mismatch.expected), ("  found", mismatch.found)])
        for note in report.notes:
            out.line(f"  note, {note.kind}: {note.name}")
            out.facts([("  want", note.expected), ("  found", note.found)])
        for one in concerned:
            out.line(f"  needed by {one}")
        if report.mismatches:
            out.line(
                "  next: put these files back (docs/operations.md, Bytes are damaged or missing)"
            )

    code = ExitCode.INTEGRITY if report.mismatches else ExitCode.DONE
    return Answer(document=document, page=page, exit_code=code)


def _row(mismatch: Mismatch) -> dict[str, str]:
    return {
        "name": mismatch.name,
        "kind": mismatch.kind,
        "expected": mismatch.expected,
        "found": mismatch.found,
    }


def _required(shell: Shell, name: str) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.trust.requirements import bytes_finding, requirement_findings
    from engine_pipeline.trust.standing import Standing
    from engine_registry.errors import ExitCode
    from engine_registry.refs import ChannelRef, ProductRef

    release = shell.registry.resolve_release(name)
    made = ProductRef(release.model, release.target)
    product = shell.policies.for_product(made)
    channel = shell.registry.resolve(name).channel
    asked = (channel.channel,) if channel else tuple(product.channels)
    engine = release.content.engine
    shell.progress.phase("verify", f"engine {engine.short}")
    rows: list[tuple[str, Finding]] = [("-", bytes_finding(shell.registry, engine))]
    signatures = shell.signatures(engine)
    for one in asked:
        policy = shell.policies.for_channel(channel) if channel else product.channels[one]
        findings = requirement_findings(
            shell.registry,
            release,
            channel or ChannelRef(made, one),
            policy,
            shell.policies,
            suite=lambda suite: _suite(shell, suite),
            signatures=signatures,
            now=utc_now(),
        )
        rows += [(one, finding) for finding in findings]
    shell.close()
    broken = [finding for _, finding in rows if not finding.holds]
    bad = [seen for seen in signatures.seen if seen.standing is Standing.BAD]
    code = max((f.exit_code for f in broken), default=ExitCode.DONE)
    document = {
        "ok": not broken,
        "release": release.name,
        "engine": str(engine),
        "channels": list(asked),
        "findings": [
            {"channel": one, "rule": f.rule, "holds": f.holds, "says": f.says, "hint": f.hint}
            for one, f in rows
        ],
        "bad_envelopes": [{"envelope": str(s.envelope), "says": s.says} for s in bad],
    }

    def page(out: Page) -> None:
        out.verdict("failed" if broken else "ok", f"{release.name} for {', '.join(asked)}")
        for one, finding in rows:
            out.verdict("ok" if finding.holds else "failed", f"{one} {finding.says}")
            if not finding.holds:
                out.line(f"    next: {finding.hint}")
        for seen in bad:
            out.line(f"  note: envelope {seen.envelope.short}: {seen.says}")

    return Answer(document=document, page=page, exit_code=code)


def _suite(shell: Shell, name: str) -> Digest | None:
    return shell.suite(name).digest if (shell.suites_dir / name).is_dir() else None
