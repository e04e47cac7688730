"""The faces of a stored report, on standard output or in files; nothing is run to make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.gates.differences import Beside
    from engine_pipeline.gates.report import Report
    from engine_pipeline.promote.policy import ChannelPolicy

FORMS = ("markdown", "html", "junit", "json")
_SUFFIXES = {".md": "markdown", ".html": "html", ".xml": "junit", ".json": "json"}
# These hold one report; the others take one after another.
_SINGLE = frozenset({"html", "json"})


def form_of(path: Path) -> str:
    """The form that a file's suffix asks for; a usage error if it is none of them."""
    form = _SUFFIXES.get(path.suffix)
    if form is None:
        raise click.UsageError(f"{path}: the suffix picks the form, want {', '.join(_SUFFIXES)}")
    return form


def refuse_twice(paths: Sequence[Path]) -> None:
    """Raise UsageError for a file that two reports would go to."""
    places = [path.resolve() for path in paths]
    for path in paths:
        if places.count(path.resolve()) > 1:
            raise click.UsageError(f"{path} is named twice: one report would overwrite the other")


def refuse_without_place(path: Path) -> None:
    """Raise InvalidInput where no file can be written for want of a directory."""
    from engine_registry.errors import InvalidInput

    if not path.parent.is_dir() or path.is_dir():
        what = "is a directory" if path.is_dir() else f"no directory {path.parent}"
        raise InvalidInput(
            f"{path}: cannot be written: {what}",
            hint=f"make the directory first: mkdir -p {path.parent}, and name a file in it",
            reference="report-file-invalid",
        )


def checked_files(
    report_files: Sequence[Path], junit: Path | None, gates: Sequence[str]
) -> list[tuple[Path, str]]:
    """Where to write what, refused before an engine is judged for an hour and not after.

    Raises:
        UsageError: an unknown suffix, a file that is named twice, or several gates for one that
            holds one report.
        InvalidInput: its directory is not there.
    """
    wanted = [(path, form_of(path)) for path in report_files]
    if junit is not None:
        wanted.append((junit, "junit"))
    refuse_twice([path for path, _ in wanted])
    for path, form in wanted:
        if form in _SINGLE and len(gates) > 1:
            raise click.UsageError(
                f"{path} holds one report, {len(gates)} gates are asked for: "
                f"name one with --gate ({', '.join(gates)}), or write .md or .xml"
            )
        refuse_without_place(path)
    return wanted


def in_form(shell: Shell, reports: Sequence[Report], form: str) -> str:
    """Reports in one of FORMS; html and json take exactly one."""
    if form == "markdown":
        from engine_pipeline.gates.markdown import to_markdown

        return "\n".join(map(to_markdown, reports))
    if form == "junit":
        from engine_pipeline.gates.junit import to_junit

        return to_junit(reports)
    (report,) = reports
    if form == "json":
        from engine_registry.documents import canonical_json

        return canonical_json(report).decode() + "\n"
    from engine_pipeline.gates.html.document import to_html

    return to_html(report, beside(shell, report))


def beside(shell: Shell, report: Report) -> Beside:
    """What the report is set beside: what was live then, the channel nearest to users first.

    Of the channels that ask for this gate; without a policy, all of the product, prod first.
    """
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.gates.differences import NoLive
    from engine_pipeline.promote.live_report import report_of_live
    from engine_registry.errors import EngineCIError
    from engine_registry.refs import ChannelRef, ProductRef

    if report.engine is None:
        return NoLive(reason="an endpoint is judged alone")
    record = latest_record(shell.registry.engines.records(report.engine))
    product = ProductRef(record.model, record.target)
    try:
        rules = shell.policies.for_product(product).channels
    except EngineCIError:
        there = shell.registry.channels.channels(product)
        channels = sorted(there, key=lambda ref: ref.channel != "prod")
    else:
        asking = [name for name, rule in rules.items() if report.gate in rule.gates]
        asking.sort(key=lambda name: -_depth(name, rules))
        channels = [ChannelRef(product, name) for name in asking]
    return report_of_live(shell.registry, report, channels)


def _depth(name: str, rules: Mapping[str, ChannelPolicy]) -> int:
    """How many channels a release passes before this one."""
    upstream = rules[name].upstream
    return 0 if upstream is None else 1 + _depth(upstream, rules)


def write_whole(path: Path, text: str) -> None:
    """Put `text` into a file, the old one's or a new one's place, all of it or none.

    Raises:
        Unavailable: it cannot be written; the report is in the registry all the same.
    """
    from engine_pipeline.whole_file import replace_whole
    from engine_registry.errors import Unavailable

    try:
        replace_whole(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror}; the report is in the registry",
            hint="write it again without judging: `enginectl show ENGINE --report --format FORM`",
            reference="report-unwritable",
        ) from error
