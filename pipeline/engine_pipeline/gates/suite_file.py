"""Reads a suite from its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.gates.prefix import PrefixFile
from engine_pipeline.gates.suite import CaseFile, Suite, SuiteFile
from engine_pipeline.gates.template_file import load_template
from engine_pipeline.yaml_file import validated
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.gates.prefix import PrefixBlock
    from engine_pipeline.gates.suite import Case, TemplateGoldens

SUITE_FILE = "suite.yaml"
PREFIX_FILE = "prefixes.yaml"


def load_suite(suites_dir: Path, name: str) -> Suite:
    """The suite `name` below `suites_dir`, whole.

    Raises:
        NotFound: no such suite, or a case file it names is missing.
        InvalidInput: a file is not valid (names file, line and key path), the suite's name is not
            its directory's, a case file lies outside, or two cases have the same id.
    """
    suite_dir = suites_dir / name
    head_path = suite_dir / SUITE_FILE
    if not head_path.is_file():
        known = sorted(path.parent.name for path in suites_dir.glob(f"*/{SUITE_FILE}"))
        raise NotFound(
            f"no suite {name!r} in {suites_dir} (there are: {', '.join(known) or 'none'})",
            hint="name a directory of golden_prompts/ that holds a suite.yaml",
            reference="suite-not-found",
        )
    head = validated(head_path, SuiteFile)
    if head.name != name:
        raise InvalidInput(
            f"{head_path}: name: says {head.name!r}, its directory is {name!r}",
            hint="give suite and directory the same name",
            reference="suite-name-mismatch",
        )
    return _assemble(
        head,
        head_path,
        _read_cases(head, suite_dir),
        load_template(suite_dir),
        _prefixes(suite_dir),
    )


def _prefixes(suite_dir: Path) -> tuple[PrefixBlock, ...]:
    path = suite_dir / PREFIX_FILE
    return validated(path, PrefixFile).prefixes if path.is_file() else ()


def _read_cases(head: SuiteFile, suite_dir: Path) -> list[Case]:
    cases: list[Case] = []
    origin: dict[str, str] = {}
    for file_name in head.cases:
        path = suite_dir / file_name
        if not path.resolve().is_relative_to(suite_dir.resolve()):
            raise InvalidInput(
                f"{suite_dir / SUITE_FILE}: cases: {file_name} lies outside {suite_dir}",
                hint="keep case files below the suite's directory",
                reference="case-file-outside",
            )
        if not path.is_file():
            raise NotFound(
                f"{suite_dir / SUITE_FILE}: cases: names {file_name}, which is not there",
                hint=f"write {path} or take its name out of the list",
                reference="case-file-not-found",
            )
        for case in validated(path, CaseFile).cases:
            if case.id in origin:
                raise InvalidInput(
                    f"{path}: case id {case.id!r} is taken by {origin[case.id]}",
                    hint="give each case of a suite its own id",
                    reference="duplicate-case-id",
                )
            origin[case.id] = file_name
            cases.append(case)
    return cases


def _assemble(
    head: SuiteFile,
    head_path: Path,
    cases: list[Case],
    template: TemplateGoldens | None,
    prefixes: tuple[PrefixBlock, ...],
) -> Suite:
    fields = {name: getattr(head, name) for name in SuiteFile.model_fields if name != "cases"}
    try:
        return Suite(**fields, cases=tuple(cases), template=template, prefixes=prefixes)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(
            f"{head_path}: {first['msg']}",
            hint="correct the suite and load it again",
            reference="invalid-suite",
        ) from error
