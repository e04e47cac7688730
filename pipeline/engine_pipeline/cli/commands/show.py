"""`enginectl show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb
from engine_pipeline.cli.report_forms import FORMS, in_form

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_registry.digest import Digest
    from engine_registry.record import Record, ReferrerLink, Release


@verb("show")
@click.argument("name")
@click.option(
    "--report",
    "report",
    metavar="DIGEST",
    is_flag=False,
    flag_value="newest",
    help="Print a gate report: the newest, or the one whose digest begins so.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Form of the report: Markdown, one self-contained HTML page, JUnit XML, or JSON as stored "
    "[default: markdown]. Nothing is judged again.",
)
def command(shell: Shell, name: str, report: str | None, form: str | None) -> Answer:
    """Everything known of an engine, a release or a channel.

    NAME is a digest, a unique prefix, MODEL/TARGET:N or MODEL/TARGET/CHANNEL (what is live there).
    Alone, --format means the newest report.
    """
    if form is not None and click.get_current_context().obj.wants_json:
        raise click.UsageError("--output json holds the whole report; leave --format out")
    found = shell.registry.resolve(name)
    if report is not None or form is not None:
        return _report(shell, found.engine, report or "newest", form or "markdown")
    return _engine(shell, found.engine, found.release)


def _engine(shell: Shell, engine: Digest, release: Release | None) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_registry import manifest

    stored = shell.registry.engines.engine(engine)
    links = shell.registry.engines.referrers(engine)
    reports = sorted(
        (link for link in links if link.artifact_type == manifest.REPORT_ARTIFACT), key=_created
    )
    document = {
        "engine": str(engine),
        "release": release.model_dump(mode="json") if release else None,
        "manifest": stored.manifest.model_dump(mode="json", by_alias=True, exclude_none=True),
        "records": [record.model_dump(mode="json") for record in stored.records],
        "attached": [link.model_dump(mode="json") for link in links],
    }

    def page(out: Page) -> None:
        from engine_pipeline.cli.render import size

        if release is not None:
            _draw_release(out, release)
        out.line(f"engine {engine}")
        out.table(
            ("file", "size", "digest"),
            [(f.title, size(f.size), f.digest.short) for f in stored.manifest.layers],
        )
        for record in stored.records:
            _draw_record(out, record)
        _draw_kept(out, links)
        _draw_signatures(out, links)
        if reports:
            out.line("reports")
            out.table(
                ("gate", "outcome", "suite", "at", "digest"), [_report_row(r) for r in reports]
            )
            out.line(f"  read the newest: enginectl show {engine.short} --report")
        else:
            out.line(f"no reports yet; judge it: enginectl gate {engine.short}")

    return Answer(document=document, page=page)


def _draw_release(out: Page, release: Release) -> None:
    from engine_pipeline.cli.render import when

    content = release.content
    out.line(f"release {release.name}")
    out.facts(
        [
            ("created", f"{when(release.created_at)} by {release.created_by.name}"),
            ("serving image", content.serving_image),
            ("tokenizer", content.tokenizer),
            ("runtime", _words(content.runtime_config)),
            ("evidence", ", ".join(d.short for d in content.evidence) or "none"),
        ]
    )


def _draw_record(out: Page, record: Record) -> None:
    from engine_pipeline.cli.render import seconds, size, when

    platform = record.platform
    out.line(f"built from {record.spec}")
    out.facts(
        [
            ("build key", record.build_key),
            ("precision", f"{record.precision} ({record.kind})"),
            ("target", platform.sku),
            ("runtime", _words(platform.runtime)),
            ("driver", platform.driver),
            ("CUDA", platform.cuda),
            ("TensorRT", platform.tensorrt),
            ("built", f"{when(record.built_at)} by {record.built_by.name}"),
            ("took", seconds(record.build_wall_s) if record.build_wall_s is not None else None),
            (
                "peak memory",
                size(record.build_peak_rss_bytes) if record.build_peak_rss_bytes else None,
            ),
            ("lock", record.lock),
            ("provenance", record.provenance),
        ]
    )


def _draw_kept(out: Page, links: list[ReferrerLink]) -> None:
    """Files that the build left beside the engine, each once."""
    from engine_pipeline.build.kept import KEPT_ARTIFACT, KEPT_DIGEST, KEPT_FILE, KEPT_STEP

    rows = sorted(
        {
            tuple(link.annotations.get(name, "-") for name in (KEPT_FILE, KEPT_STEP, KEPT_DIGEST))
            for link in links
            if link.artifact_type == KEPT_ARTIFACT
        }
    )
    if rows:
        out.table(("kept beside it", "left by step", "digest"), rows)


def _draw_signatures(out: Page, links: list[ReferrerLink]) -> None:
    """Whose signatures are attached, as they say of themselves."""
    from engine_pipeline.trust.bundle import BUNDLE, PREDICATE_TYPE
    from engine_pipeline.trust.signatures import KEY_ID, ROLE
    from engine_registry.dsse import ENVELOPE

    rows = []
    for link in links:
        notes = link.annotations
        if link.artifact_type == ENVELOPE:
            by = f"key {notes.get(KEY_ID, '-')[:12]}"
            rows.append((notes.get(ROLE, "-"), by, link.manifest.short))
        elif link.artifact_type == BUNDLE:
            rows.append((notes.get(PREDICATE_TYPE, "-"), "sigstore", link.manifest.short))
    if rows:
        out.line("signatures, as they are labelled; `enginectl verify --policy` judges them")
        out.table(("of", "by", "digest"), sorted(rows))


def _report_row(link: ReferrerLink) -> tuple[str, str, str, str, str]:
    from engine_pipeline.gates.report import GATE, OUTCOME, SUITE_NAME

    notes = link.annotations
    at = _created(link)[:19].replace("T", " ")
    found = (notes.get(GATE, "-"), notes.get(OUTCOME, "-"), notes.get(SUITE_NAME, "-"))
    return (*found, f"{at}Z", link.manifest.short)


def _created(link: ReferrerLink) -> str:
    from engine_pipeline.gates.report import CREATED

    return link.annotations.get(CREATED, "")


def _words(value: dict[str, Any]) -> str:
    flat = []
    for name, item in value.items():
        flat += (
            [f"{k}={v}" for k, v in item.items()] if isinstance(item, dict) else [f"{name} {item}"]
        )
    return ", ".join(flat) or "-"


def _report(shell: Shell, engine: Digest, wanted: str, form: str) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.promote.evidence import read_report
    from engine_registry import manifest
    from engine_registry.errors import NotFound

    links = sorted(shell.registry.engines.referrers(engine, manifest.REPORT_ARTIFACT), key=_created)
    if wanted != "newest":
        prefix = wanted.removeprefix("sha256:")
        links = [link for link in links if link.manifest.hex.startswith(prefix)]
    if not links:
        raise NotFound(
            f"engine {engine.short} has no report" + ("" if wanted == "newest" else f" {wanted}"),
            hint=f"`enginectl show {engine.short}` lists them, `enginectl gate` makes one",
            reference="report-missing",
        )
    attached = links[-1].manifest
    report = read_report(shell.registry, engine, attached)
    document = {"digest": str(attached), "report": report.model_dump(mode="json")}

    text = in_form(shell, [report], form)

    def page(out: Page) -> None:
        out.line(text.removesuffix("\n"))

    return Answer(document=document, page=page)
