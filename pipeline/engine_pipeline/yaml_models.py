"""Which model a place in a file is read as, by the annotations of the model of the whole. Pure."""

from __future__ import annotations

import inspect
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

Key = str | int


def model_at(model: type[BaseModel], path: tuple[Key, ...], value: Any) -> type[BaseModel] | None:
    """The model that the mapping at `path` is read as, as far as annotations tell."""
    current: Any = model
    for part in path:
        current = _step(current, part, value)
        value = _child(value, part)
    return _as_model(current, value)


def _child(value: Any, part: Key) -> Any:
    try:
        return value[part]
    except (KeyError, IndexError, TypeError):
        return None


def _step(annotation: Any, part: Key, parent: Any) -> Any:
    owner = _as_model(annotation, parent)
    if owner is not None:
        return fields_of(owner).get(str(part))
    for member in _members(annotation):
        origin, arguments = get_origin(member), get_args(member)
        if origin is dict and len(arguments) == 2:
            return arguments[1]
        if origin in {tuple, list, set, frozenset} and arguments:
            return arguments[0]
    return None


def _as_model(annotation: Any, value: Any) -> type[BaseModel] | None:
    """The model among an annotation's members; of several, the one whose tag `value` carries."""
    models = [m for m in _members(annotation) if inspect.isclass(m) and issubclass(m, BaseModel)]
    if len(models) > 1 and isinstance(value, dict):
        for model in models:
            for key, field_type in fields_of(model).items():
                tag = value.get(key)
                if get_origin(field_type) is Literal and tag in get_args(field_type):
                    return model
        return None
    return models[0] if len(models) == 1 else None


def fields_of(model: type[BaseModel]) -> dict[str, Any]:
    """Key in a file → type."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _members(annotation: Any) -> list[Any]:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, types.UnionType}:
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]
