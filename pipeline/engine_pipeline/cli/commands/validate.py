"""`enginectl validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell

_TARGETS = "targets.yaml"
_NOTIFICATIONS = "notifications.yaml"


@verb("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--schema",
    type=click.Choice(["spec", "report"]),
    is_flag=False,
    flag_value="spec",
    help="Print the JSON Schema of a spec, for editors, or of a gate's report.",
)
def command(shell: Shell, files: tuple[Path, ...], schema: str | None) -> Answer:
    """Check specs, suites and channels.yaml; all of the project's when no FILES are given.

    A directory is a suite, channels.yaml the policies, anything else a spec. Every problem of every
    file is printed with its line and key path.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_registry.errors import ExitCode

    if schema is not None:
        return _schema(schema)
    rows = [_examine(shell, path) for path in files or _project(shell)]
    bad = [row for row in rows if row["problems"]]

    def page(out: Page) -> None:
        for row in rows:
            out.verdict("failed" if row["problems"] else "ok", f"{row['file']} ({row['what']})")
            for problem in row["problems"]:
                out.line(f"    {problem}")
            for warning in row["warnings"]:
                out.line(f"    warning: {warning}")

    code = ExitCode.INVALID if bad else ExitCode.DONE
    return Answer(document={"files": rows, "ok": not bad}, page=page, exit_code=code)


def _schema(of: str) -> Answer:
    import json

    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.gates.report_schema import report_schema
    from engine_pipeline.spec.load import spec_schema

    document = spec_schema() if of == "spec" else report_schema()

    def page(out: Page) -> None:
        out.line(json.dumps(document, indent=2))

    return Answer(document={"schema": document}, page=page)


def _project(shell: Shell) -> list[Path]:
    root = shell.channels_file.parent
    suites = sorted(path.parent for path in shell.suites_dir.glob("*/suite.yaml"))
    return [
        *sorted(root.glob("build_specs/*/*.yaml")),
        *suites,
        shell.channels_file,
        *sorted(root.glob(_TARGETS)),
        *sorted(root.glob(_NOTIFICATIONS)),
    ]


def _examine(shell: Shell, path: Path) -> dict[str, Any]:
    from engine_registry.errors import EngineCIError

    what = "spec"
    if path.is_dir():
        what = "suite"
    elif path.name == shell.channels_file.name:
        what = "policies"
    elif path.name == _TARGETS:
        what = "targets"
    elif path.name == _NOTIFICATIONS:
        what = "notifications"
    problems: list[str] = []
    try:
        _load(shell, path, what)
    except EngineCIError as error:
        found = getattr(error, "problems", ())
        problems = [p.within(str(path)) for p in found]
        problems = problems or [error.message, f"next: {error.hint}"]
    warnings: list[str] = []
    if what == "policies" and not problems:
        warnings = _warnings(shell, path)
    elif what == "suite" and not problems:
        warnings = _suite_warnings(path)
    return {"file": str(path), "what": what, "problems": problems, "warnings": warnings}


def _suite_warnings(path: Path) -> list[str]:
    """Quarantines that are over, and code of checks that is not installed here."""
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.python_check import resolve_checks
    from engine_pipeline.gates.standing import quarantines_over
    from engine_pipeline.gates.suite_file import load_suite
    from engine_registry.errors import EngineCIError

    suite = load_suite(path.parent, path.name)
    told = quarantines_over(suite, utc_now().date())
    try:
        resolve_checks(suite)
    except EngineCIError as error:
        told.append(error.message)
    return told


def _warnings(shell: Shell, path: Path) -> list[str]:
    """Bars that can hardly fail, or that fail by chance as far as somebody calibrated them.

    And embedding models that are not on this machine: whoever judges needs them, others do not.
    """
    from engine_pipeline.gates.calibration import warnings
    from engine_pipeline.gates.calibration_bars import bars_of, basis_of
    from engine_pipeline.gates.calibration_file import read_calibrations
    from engine_pipeline.gates.idle_bars import idle_bars
    from engine_pipeline.gates.suite_file import load_suite

    told = _models_missing(shell, path.parent)
    suites = path.parent / "golden_prompts"
    for name, policy in shell.policies.gates.items():
        suite, workloads = load_suite(suites, policy.suite), shell.workloads(policy.lanes)
        told += idle_bars(name, policy, suite, workloads)
        bars, basis = bars_of(policy, suite, workloads), basis_of(policy, suite, workloads)
        told += [
            f"{warning} on {found.host_class}"
            for found in read_calibrations(suites / policy.suite)
            if name in found.gates
            for warning in warnings(name, bars, basis, found.gates[name])
        ]
    return told


def _models_missing(shell: Shell, folder: Path) -> list[str]:
    from engine_pipeline.cli.wiring_embeddings import pinned_file
    from engine_pipeline.gates.embedding_model import LocalEmbeddings
    from engine_registry.errors import EngineCIError

    told = []
    for name, policy in shell.policies.gates.items():
        if isinstance(policy.embeddings, LocalEmbeddings):
            try:
                pinned_file(folder, policy.embeddings)
            except EngineCIError as error:
                told.append(f"gate {name}: {error.message}")
    return told


def _load(shell: Shell, path: Path, what: str) -> None:
    from engine_pipeline.cli.locked import checked_spec
    from engine_pipeline.gates.calibration_file import read_calibrations
    from engine_pipeline.gates.policy import check_fits
    from engine_pipeline.gates.suite_file import load_suite
    from engine_pipeline.notify.settings import Notifications
    from engine_pipeline.promote.policy import Policies
    from engine_pipeline.targets.definition import Targets
    from engine_pipeline.trust.key_files import load_keys
    from engine_pipeline.yaml_file import validated

    match what:
        case "suite":
            load_suite(path.parent, path.name)
        case "policies":
            policies = validated(path, Policies)
            load_keys(policies.trust, path.parent)
            for name in policies.node_files:
                shell.node(name)
            for policy in policies.gates.values():
                check_fits(policy, load_suite(path.parent / "golden_prompts", policy.suite))
                read_calibrations(path.parent / "golden_prompts" / policy.suite)
                shell.workloads(policy.lanes)
        case "targets":
            validated(path, Targets, reference="targets-invalid")
        case "notifications":
            validated(path, Notifications, reference="notifications-invalid")
        case _:
            spec = checked_spec(shell, path)
            for name in spec.suites:
                shell.suite(name)
