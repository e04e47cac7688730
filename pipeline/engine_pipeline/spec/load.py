"""Reads a build spec and publishes its schema.

The dialect and the wording of errors are `yaml_file`'s; this module adds what only a spec needs:
its own reference, a smaller size, and the refusal of anything that looks like a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from engine_pipeline.redact import TOKEN
from engine_pipeline.spec.hardware import sku_names
from engine_pipeline.spec.model import BuildSpec
from engine_pipeline.yaml_file import InvalidDocument, load_yaml, validate
from engine_pipeline.yaml_problems import Problem, attribute_docs

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.yaml_reader import Positions

REFERENCE = "spec-invalid"
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def load_spec(path: Path) -> BuildSpec:
    """The spec in the file at `path`.

    Raises:
        NotFound: no such file.
        InvalidDocument: reference `spec-invalid`; `problems` has every error with its line.
    """
    value, positions = load_yaml(path, reference=REFERENCE)
    return _spec(value, positions, str(path))


def spec_schema() -> dict[str, Any]:
    """The JSON Schema of a spec, for editors, with descriptions from the model's docstrings."""
    schema = BuildSpec.model_json_schema()
    models = {model.__name__: model for model in _models(BuildSpec)}
    for name, definition in {**schema.get("$defs", {}), "BuildSpec": schema}.items():
        model = models.get(name)
        if model is not None:
            _describe(definition, model)
    schema["$defs"]["TargetSpec"]["properties"]["sku"]["enum"] = list(sku_names())
    return {
        "$schema": SCHEMA_DIALECT,
        **schema,
        "title": "engine-ci build spec",
        "description": "One engine to build: a model revision on a target at a precision.",
    }


def _spec(value: Any, positions: Positions, name: str) -> BuildSpec:
    secrets = tuple(_secrets(value, (), positions))
    if secrets:
        raise InvalidDocument(name, secrets, reference=REFERENCE)
    return validate(value, positions, BuildSpec, name, reference=REFERENCE)


def _secrets(value: Any, path: tuple[str | int, ...], positions: Positions) -> list[Problem]:
    if isinstance(value, str) and TOKEN.search(value):
        return [
            Problem(
                line=positions.get(path, 1),
                path=".".join(map(str, path)),
                text="looks like an access token (not shown); a spec is no place for secrets",
                hint="revoke it, remove it here, give the new one by environment, e.g. HF_TOKEN",
            )
        ]
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [p for key, child in children for p in _secrets(child, (*path, key), positions)]


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for member in _classes(field.annotation):
            if issubclass(member, BaseModel):
                found |= _models(member)
    return found


def _classes(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return [annotation]
    return [c for inner in getattr(annotation, "__args__", ()) for c in _classes(inner)]


def _describe(definition: dict[str, Any], model: type[BaseModel]) -> None:
    definition["description"] = (model.__doc__ or "").strip().split("\n", 1)[0]
    for name, text in attribute_docs(model).items():
        definition["properties"][name]["description"] = text
