"""Every error a user can see names a next step and carries a stable reference."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from engine_registry import errors
from engine_registry.errors import EngineCIError, ExitCode

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    path
    for folder in ("registry/engine_registry", "pipeline/engine_pipeline")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def tree_of(root: type[EngineCIError]) -> list[type[EngineCIError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree_of(child))]


CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, EngineCIError)
}


def raised() -> list[tuple[str, ast.Call]]:
    """Every construction of one of the error classes, with its place."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in CLASSES
    ]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def test_there_are_errors_to_check():
    assert len(raised()) > 50


def test_every_error_names_the_next_step():
    silent = []
    for place, call in raised():
        hint = keyword(call, "hint")
        if hint is None or (isinstance(hint, ast.Constant) and not str(hint.value).strip()):
            silent.append(place)
    assert not silent


def test_every_error_says_what_happened():
    assert not [place for place, call in raised() if len(call.args) != 1]


def test_references_are_kebab_case():
    wrong = []
    for place, call in raised():
        reference = keyword(call, "reference")
        if isinstance(reference, ast.Constant) and not KEBAB.fullmatch(str(reference.value)):
            wrong.append(f"{place}: {reference.value}")
    assert not wrong


def test_one_reference_means_one_exit_code():
    codes: dict[str, set[ExitCode]] = {}
    for _, call in raised():
        reference = keyword(call, "reference")
        if isinstance(reference, ast.Constant) and isinstance(call.func, ast.Name):
            kind = getattr(errors, call.func.id)
            codes.setdefault(str(reference.value), set()).add(kind.exit_code)
    assert not {name: found for name, found in codes.items() if len(found) > 1}


def test_every_class_has_its_own_reference_and_an_exit_code_of_the_table():
    classes = tree_of(EngineCIError)
    references = [kind.reference for kind in classes if "reference" in vars(kind)]
    assert len(references) == len(set(references))
    assert {kind.exit_code for kind in classes} <= set(ExitCode)
