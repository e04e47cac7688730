"""One file or folder as `enginectl validate` judges it: what it is, what is wrong, what to mind."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from engine_pipeline.file_kind import FileKind, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.promote.policy import Policies
    from engine_registry.errors import EngineCIError

_SUITE_FILE = "suite.yaml"
_UNKNOWN = "taken for a spec: its keys are those of no kind of file that is known here"


def examine(shell: Shell, path: Path) -> dict[str, Any]:
    """The row of one path: `file`, `what`, `problems` and `warnings`, each a list of lines."""
    from engine_pipeline.yaml_file import InvalidDocument
    from engine_registry.errors import EngineCIError

    kind = FileKind.SUITE if path.is_dir() else _kind(shell, path)
    what = kind or FileKind.SPEC
    problems: list[str] = []
    warnings: list[str] = []
    try:
        warnings = _judged(shell, path, what)
    except InvalidDocument as error:
        problems = [problem.within(error.file) for problem in error.problems]
    except EngineCIError as error:
        problems = [error.message, f"next: {error.hint}"]
    if problems and kind is None and path.is_file():
        warnings = [_UNKNOWN]
    return {"file": str(path), "what": str(what), "problems": problems, "warnings": warnings}


def _kind(shell: Shell, path: Path) -> FileKind | None:
    from engine_pipeline.yaml_file import load_yaml
    from engine_registry.errors import EngineCIError

    try:
        value = load_yaml(path)[0]
    except EngineCIError:
        value = None
    found = kind_of(value, path.name)
    if found is None and path.name == shell.channels_file.name:
        return FileKind.POLICIES
    return found


def _judged(shell: Shell, path: Path, kind: FileKind) -> list[str]:
    """Raise what is wrong; the warnings of what is right."""
    from engine_pipeline.bakeoff.file import REFERENCE, BakeoffFile
    from engine_pipeline.gates.prefix import PrefixFile
    from engine_pipeline.gates.suite import CaseFile, TemplateGoldens
    from engine_pipeline.notify.settings import Notifications
    from engine_pipeline.targets.definition import Targets
    from engine_pipeline.workload.file import load_workload
    from engine_pipeline.yaml_file import validated

    match kind:
        case FileKind.SUITE:
            return _suite(path)
        case FileKind.POLICIES:
            return _policies(shell.under(path), path)
        case FileKind.CASES:
            validated(path, CaseFile)
        case FileKind.TEMPLATE:
            validated(path, TemplateGoldens)
        case FileKind.PREFIXES:
            validated(path, PrefixFile)
        case FileKind.TARGETS:
            validated(path, Targets, reference="targets-invalid")
        case FileKind.NOTIFICATIONS:
            validated(path, Notifications, reference="notifications-invalid")
        case FileKind.WORKLOAD:
            load_workload(path)
        case FileKind.BAKEOFF:
            for name in validated(path, BakeoffFile, reference=REFERENCE).suites:
                shell.suite(name)
        case FileKind.SPEC:
            _spec(shell, path)
    return []


def _spec(shell: Shell, path: Path) -> None:
    from engine_pipeline.cli.locked import checked_spec

    for name in checked_spec(shell, path).suites:
        shell.suite(name)


def _suite(path: Path) -> list[str]:
    """Of a suite's folder or its head: quarantines that are over, code that is not installed."""
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.gates.python_check import resolve_checks
    from engine_pipeline.gates.standing import quarantines_over
    from engine_pipeline.gates.suite import SuiteFile
    from engine_pipeline.gates.suite_file import load_suite
    from engine_pipeline.yaml_file import validated
    from engine_registry.errors import EngineCIError

    if path.is_file() and path.name != _SUITE_FILE:
        validated(path, SuiteFile)
        return []
    folder = path if path.is_dir() else path.parent
    if not (folder / _SUITE_FILE).is_file():
        raise _no_suite(folder)
    if not folder.name or folder.name == "..":
        folder = folder.resolve()
    suite = load_suite(folder.parent, folder.name)
    told = quarantines_over(suite, utc_now().date())
    try:
        resolve_checks(suite)
    except EngineCIError as error:
        told.append(error.message)
    return told


def _no_suite(folder: Path) -> EngineCIError:
    """What to validate instead of a folder that is no suite: what lies below it."""
    from engine_registry.errors import NotFound

    suites = sorted(found.parent for found in folder.glob(f"*/{_SUITE_FILE}"))
    files = [pattern for pattern in ("*.yaml", "*/*.yaml") if any(folder.glob(pattern))]
    if suites:
        hint = f"run `enginectl validate {shlex.join(map(str, suites))}`"
    elif files:
        # As the shell expands it: all of them, however many.
        each = " ".join(f"{shlex.quote(str(folder))}/{pattern}" for pattern in files)
        hint = f"run `enginectl validate {each}`"
    else:
        hint = "name a folder with a suite.yaml in it, or a YAML file"
    lies = f"; suites below it: {', '.join(one.name for one in suites)}" if suites else ""
    return NotFound(
        f"{folder}: no suite, it has no {_SUITE_FILE}{lies}", hint=hint, reference="suite-not-found"
    )


def _policies(shell: Shell, path: Path) -> list[str]:
    """Of policies, with all that lies beside them: bars that can hardly fail, or fail by chance.

    And embedding models that are not on this machine: whoever judges needs them, others do not.
    """
    from engine_pipeline.gates.calibration_file import read_calibrations
    from engine_pipeline.gates.policy import check_fits
    from engine_pipeline.promote.policy import Policies
    from engine_pipeline.trust.key_files import load_keys
    from engine_pipeline.yaml_file import validated

    policies = validated(path, Policies)
    load_keys(policies.trust, path.parent)
    for name in policies.node_files:
        shell.node(name)
    for policy in policies.gates.values():
        check_fits(policy, shell.suite(policy.suite))
        read_calibrations(shell.suites_dir / policy.suite)
        shell.workloads(policy.lanes)
    return [*_models_missing(policies, path.parent), *_loose_bars(shell, policies)]


def _loose_bars(shell: Shell, policies: Policies) -> list[str]:
    from engine_pipeline.gates.calibration import warnings
    from engine_pipeline.gates.calibration_bars import bars_of, basis_of
    from engine_pipeline.gates.calibration_file import read_calibrations
    from engine_pipeline.gates.idle_bars import idle_bars

    told: list[str] = []
    for name, policy in policies.gates.items():
        suite, workloads = shell.suite(policy.suite), shell.workloads(policy.lanes)
        told += idle_bars(name, policy, suite, workloads)
        bars, basis = bars_of(policy, suite, workloads), basis_of(policy, suite, workloads)
        told += [
            f"{warning} on {found.host_class}"
            for found in read_calibrations(shell.suites_dir / policy.suite)
            if name in found.gates
            for warning in warnings(name, bars, basis, found.gates[name])
        ]
    return told


def _models_missing(policies: Policies, folder: Path) -> list[str]:
    from engine_pipeline.cli.wiring_embeddings import pinned_file
    from engine_pipeline.gates.embedding_model import LocalEmbeddings
    from engine_registry.errors import EngineCIError

    told = []
    for name, policy in policies.gates.items():
        if isinstance(policy.embeddings, LocalEmbeddings):
            try:
                pinned_file(folder, policy.embeddings)
            except EngineCIError as error:
                told.append(f"gate {name}: {error.message}")
    return told
