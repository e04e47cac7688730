"""Values that have grown fields since digests were first taken over them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_serializer

from engine_registry.documents import Value

if TYPE_CHECKING:
    from pydantic import SerializerFunctionWrapHandler


class Grown(Value):
    """A value whose later fields are written only where they say something.

    A document that uses none of them keeps the digest it had before there was such a thing.

    Attributes:
        LATER: names of the fields that came later; each has a default.
    """

    LATER: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_silence(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        for name in self.LATER:
            if getattr(self, name) == fields[name].get_default(call_default_factory=True):
                written.pop(name, None)
        return written
