"""The JSON Schema of a report, for whoever reads reports with a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.report import Report
from engine_pipeline.yaml_problems import attribute_docs
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """The schema that every stored report fulfils, described by the models' docstrings."""
    schema = Report.model_json_schema()
    models = {model.__name__: model for model in _models(Value)}
    for name, definition in {**schema["$defs"], "Report": schema}.items():
        if (model := models.get(name)) is None:
            continue
        definition["description"] = (model.__doc__ or "").strip().split("\n", 1)[0]
        for field, text in attribute_docs(model).items():
            definition["properties"][field]["description"] = text
    return {"$schema": _DIALECT, **schema, "title": "engine-ci gate report"}


def _models(root: type[Value]) -> Iterator[type[Value]]:
    for model in root.__subclasses__():
        if model.__module__.startswith("engine_pipeline.gates."):
            yield model
        yield from _models(model)
