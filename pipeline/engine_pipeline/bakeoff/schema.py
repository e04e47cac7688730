"""The JSON Schema of a bake-off's file, for editors, described by the models' docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.bakeoff import file
from engine_pipeline.yaml_problems import attribute_docs
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def bakeoff_schema() -> dict[str, Any]:
    """The schema that every bake-off's file fulfils."""
    schema = file.BakeoffFile.model_json_schema(by_alias=True)
    models = {model.__name__: model for model in _models()}
    for name, definition in {**schema["$defs"], "BakeoffFile": schema}.items():
        if (model := models.get(name)) is None:
            continue
        definition["description"] = (model.__doc__ or "").strip().split("\n", 1)[0]
        for field, text in attribute_docs(model).items():
            key = model.model_fields[field].alias or field
            definition["properties"][key]["description"] = text
    return {"$schema": _DIALECT, **schema, "title": "engine-ci bake-off"}


def _models() -> Iterator[type[Value]]:
    for item in vars(file).values():
        if isinstance(item, type) and issubclass(item, Value):
            yield item
