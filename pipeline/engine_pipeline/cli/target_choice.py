"""Which targets a command line means, for the commands that deploy and that look at targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine_pipeline.cli.next_command import on_the_same
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.targets.definition import Definition
    from engine_pipeline.targets.port import Reading
    from engine_registry.refs import ChannelRef

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One target: its name in messages, and what describes it."""

    name: str
    definition: Definition


def target_options(function: F) -> F:
    """`[CHANNEL]`, `--target` and `--targets`."""
    for option in (
        click.option(
            "--targets",
            "targets_file",
            type=click.Path(dir_okay=False),
            envvar="ENGINECTL_TARGETS",
            help="Targets [env: ENGINECTL_TARGETS; default: targets.yaml beside channels.yaml].",
        ),
        click.option(
            "--target",
            metavar="NAME|directory:/DIR",
            help="One target of targets.yaml, or a directory; default: all that follow CHANNEL.",
        ),
        click.argument("channel", required=False, metavar="[MODEL/TARGET/CHANNEL]"),
    ):
        function = option(function)
    return function


def chosen_targets(
    shell: Shell, channel: ChannelRef | None, target: str | None, targets_file: str | None
) -> tuple[Chosen, ...]:
    """The targets that are meant, at least one.

    Raises:
        InvalidInput: a target that follows another channel, or an address that is none.
        NotFound: no such target, or no targets.yaml.
    """
    from engine_pipeline.targets.definition import Targets, inline_definition
    from engine_pipeline.yaml_file import validated

    if target is not None and (inline := inline_definition(target, channel)) is not None:
        return (Chosen(name=target, definition=inline),)
    path = _file(shell, targets_file)
    if not path.exists():
        raise NotFound(
            f"no targets: {path} does not exist",
            hint="write it, docs/deploy.md says how; or name a directory: "
            f"`enginectl deploy {channel or 'MODEL/TARGET/CHANNEL'} --target directory:/DIR`",
            reference="targets-missing",
        )
    targets = validated(path, Targets, reference="targets-invalid")
    if target is None:
        found = targets.following(channel)
        return tuple(Chosen(name=name, definition=one) for name, one in found.items())
    definition = targets.named(target)
    if channel is not None and definition.ref != channel:
        raise InvalidInput(
            f"target {target} follows {definition.channel}, asked for is {channel}",
            hint=f"change its channel in targets.yaml, or `enginectl deploy {definition.channel}`",
            reference="target-follows-another",
        )
    return (Chosen(name=target, definition=definition),)


def same_target(hint: str, name: str, targets_file: str | None) -> str:
    """`hint`, its commands that deploy for this target alone, by the same list of targets."""
    options = {"--target": name} | ({"--targets": targets_file} if targets_file else {})
    return on_the_same(hint, options, verb="deploy")


def served_text(reading: Reading) -> str:
    """`release 7 (engine 4f2a…), generation 12`, or why nothing is served."""
    from engine_pipeline.targets.port import NothingRuns

    serves = reading.serves
    if isinstance(serves, NothingRuns):
        return f"nothing: {serves.reason}"
    release = serves.deployment.release
    engine = release.content.engine.short
    return f"release {release.number} (engine {engine}), generation {serves.generation}"


def served_document(reading: Reading) -> dict[str, Any]:
    """What a target says of itself, as JSON values."""
    from engine_pipeline.targets.port import NothingRuns

    serves = reading.serves
    if isinstance(serves, NothingRuns):
        return {"deployment": None, "reason": serves.reason}
    return {
        "deployment": serves.deployment.model_dump(mode="json"),
        "generation": serves.generation,
    }


def _file(shell: Shell, targets_file: str | None) -> Path:
    from pathlib import Path

    return Path(targets_file) if targets_file else shell.channels_file.parent / "targets.yaml"
