"""The JSON Schema of a bake-off's file, for editors, described by the models' docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.bakeoff import file, goals
from engine_pipeline.gates import embedding_model, judge_model, lane_bars
from engine_pipeline.workload import arrival, lengths, model
from engine_pipeline.yaml_problems import attribute_docs
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def bakeoff_schema() -> dict[str, Any]:
    """The schema that every bake-off's file fulfils."""
    schema = file.BakeoffFile.model_json_schema(by_alias=True)
    models = {one.__name__: one for one in _models()}
    for name, definition in {**schema["$defs"], "BakeoffFile": schema}.items():
        if (one := models.get(name)) is None:
            continue
        definition["description"] = (one.__doc__ or "").strip().split("\n", 1)[0]
        for field, text in attribute_docs(one).items():
            key = one.model_fields[field].alias or field
            definition["properties"][key]["description"] = text
    return {"$schema": _DIALECT, **schema, "title": "engine-ci bake-off"}


def _models() -> Iterator[type[Value]]:
    for module in (file, goals, lane_bars, model, arrival, lengths, judge_model, embedding_model):
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Value):
                yield item
