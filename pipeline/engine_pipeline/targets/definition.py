"""`targets.yaml`: which places serve which channels, and how each is reached. Pure values.

    schema_version: 1
    targets:
      h100-a:
        kind: triton
        channel: llama-3.1-8b-instruct/h100-sxm-80gb/prod
        path: /srv/triton
        url: http://127.0.0.1:8000
        templates: /srv/all_models

Kept beside `channels.yaml`, outside the releases: a release says what is served, this says where.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from engine_registry.documents import Value
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.refs import ChannelRef, Slug

_INLINE = "directory:"


def _absolute(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts:
        msg = f"{text!r} is not an absolute path"
        raise ValueError(msg)
    if not text.isprintable() or any(mark in text for mark in '"\\$'):
        msg = f"{text!r} has a character that no configuration file can hold"
        raise ValueError(msg)
    return str(path)


def _channel(text: str) -> str:
    try:
        return str(ChannelRef.parse(text))
    except InvalidInput as error:
        raise ValueError(error.message) from error


AbsolutePath = Annotated[
    str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_absolute)
]
ChannelName = Annotated[str, AfterValidator(_channel)]
Setting = bool | int | float | Annotated[str, StringConstraints(max_length=1024)]


class _Definition(Value):
    """What every target has.

    Attributes:
        channel: what it follows.
        path: the directory of its files, as this machine sees it.
        keep: earlier versions that stay with their engines, ready to go back to.
        node: JSON file that describes the machine that loads the engine, beside `channels.yaml`;
            none: this machine.
    """

    channel: ChannelName
    path: AbsolutePath
    keep: Annotated[int, Field(ge=0, le=20)] = 2
    node: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None

    @property
    def ref(self) -> ChannelRef:
        """The channel it follows."""
        return ChannelRef.parse(self.channel)


class DirectoryDefinition(_Definition):
    """A directory that something else serves from."""

    kind: Literal["directory"] = "directory"


class TritonDefinition(_Definition):
    """A Triton Inference Server in explicit mode.

    Attributes:
        url: of its HTTP endpoint.
        templates: `all_models` of the serving image, as this machine sees it.
        seen_as: `path` as the server sees it, where a container mounts it elsewhere.
        swap: `beside` loads the new engine while the old one serves and needs memory for both;
            `replace` unloads the old one first.
        load_timeout_s: how long one model may take to load.
        prompt: what is asked before a deployment counts.
        settings: further placeholders of the templates, e.g. `enable_kv_cache_reuse`; for a
            checkpoint, arguments of the LLM API.
    """

    kind: Literal["triton"]
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+/?$", max_length=300)]
    templates: AbsolutePath
    seen_as: AbsolutePath | None = None
    swap: Literal["beside", "replace"] = "beside"
    load_timeout_s: Annotated[int, Field(ge=1, le=86400)] = 1800
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=2000)] = (
        "The capital of France is"
    )
    settings: dict[Slug, Setting] = {}


KINDS = ("directory", "triton")
Definition = Annotated[DirectoryDefinition | TritonDefinition, Field(discriminator="kind")]


class Targets(Value):
    """The whole of `targets.yaml`."""

    schema_version: Literal[1]
    targets: Annotated[dict[Slug, Definition], Field(min_length=1)]

    def following(self, channel: ChannelRef | None) -> dict[str, Definition]:
        """Every target of that channel, or all of them; never none.

        Raises:
            NotFound: reference `no-target`.
        """
        found = {
            name: target
            for name, target in self.targets.items()
            if channel is None or target.ref == channel
        }
        if not found:
            raise NotFound(
                f"no target follows {channel}; targets.yaml names "
                + ", ".join(f"{name} ({t.channel})" for name, t in self.targets.items()),
                hint="add one to targets.yaml, or name a directory with --target directory:/DIR",
                reference="no-target",
            )
        return found

    def named(self, name: str) -> Definition:
        """The target called `name`; raises NotFound (`no-target`)."""
        found = self.targets.get(name)
        if found is None:
            raise NotFound(
                f"no target {name!r} in targets.yaml; there are {', '.join(self.targets)}",
                hint="name one of them, or a directory with --target directory:/DIR",
                reference="no-target",
            )
        return found


def inline_definition(text: str, channel: ChannelRef | None) -> DirectoryDefinition | None:
    """The target that `directory:/DIR` means; None if `text` is a name.

    Raises:
        InvalidInput: `target-invalid`: another kind, not an absolute path, or no channel to follow.
    """
    if not text or (":" in text and not text.startswith(_INLINE)):
        raise InvalidInput(
            f"target {text!r}: neither a name of targets.yaml nor directory:/DIR; the kinds are "
            f"{', '.join(KINDS)}, and only a directory needs no targets.yaml",
            hint="write --target NAME or --target directory:/DIR",
            reference="target-invalid",
        )
    if not text.startswith(_INLINE):
        return None
    path = text.removeprefix(_INLINE)
    try:
        absolute = _absolute(path)
    except ValueError as error:
        raise InvalidInput(
            f"target {text!r}: {error}",
            hint="write --target directory:/absolute/path",
            reference="target-invalid",
        ) from error
    if channel is None:
        raise InvalidInput(
            f"target {text}: which channel does it follow?",
            hint=f"put MODEL/TARGET/CHANNEL before --target {text}",
            reference="target-invalid",
        )
    return DirectoryDefinition(channel=str(channel), path=absolute)
