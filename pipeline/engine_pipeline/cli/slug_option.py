"""An option whose value becomes a name: of a suite, a tag, a workload."""

from __future__ import annotations

import click


def slug(text: str, option: str) -> str:
    """The text, if it can be a name; raises UsageError, naming the option."""
    from pydantic import TypeAdapter, ValidationError

    from engine_registry.refs import Slug

    try:
        return TypeAdapter(Slug).validate_python(text)
    except ValidationError as error:
        raise click.UsageError(
            f"{option}: {text!r} is no name: want small letters, digits, `.`, `_` and `-`, "
            "at most 64"
        ) from error
