"""Options that every command has, and the decorator that makes a function a command.

A command function takes the `Shell` first and returns an `Answer`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.cli.answer import Answer, Screen

F = TypeVar("F", bound="Callable[..., Any]")


def verb(name: str) -> Callable[[Callable[..., Answer]], click.Command]:
    """Make a function the command `name`, with the common options."""

    def make(function: Callable[..., Answer]) -> click.Command:
        @click.command(name=name, context_settings={"max_content_width": 100})
        @click.option(
            "--registry",
            metavar="URL",
            envvar="ENGINECTL_REGISTRY",
            default="file:///srv/engines",
            show_default=True,
            help="Registry to use [env: ENGINECTL_REGISTRY].",
        )
        @click.option(
            "--channels",
            # What is wrong with it is said by whoever reads it: a rollback goes on without.
            type=click.Path(readable=False),
            envvar="ENGINECTL_CHANNELS",
            default="channels.yaml",
            show_default=True,
            help="Policies; suites are in golden_prompts/ beside it [env: ENGINECTL_CHANNELS].",
        )
        @click.option(
            "--cache-dir",
            type=click.Path(file_okay=False),
            envvar="ENGINECTL_CACHE",
            help="Step cache [env: ENGINECTL_CACHE; default: ~/.cache/enginectl].",
        )
        @click.option(
            "-o",
            "--output",
            type=click.Choice(["human", "json"]),
            default="human",
            show_default=True,
            help="Form of the answer on standard output.",
        )
        @click.pass_context
        @functools.wraps(function)
        def command(
            context: click.Context,
            /,
            registry: str,
            channels: str,
            cache_dir: str | None,
            output: str,
            **arguments: Any,
        ) -> int:
            from engine_pipeline.cli.next_command import on_the_same
            from engine_pipeline.cli.wiring import Shell
            from engine_registry.errors import EngineCIError

            screen: Screen = context.obj
            screen.wants_json = output == "json"
            shell = Shell(registry_url=registry, channels_file=channels, cache_dir=cache_dir)
            shell.named = {
                f"--{name}": context.params[name]
                for name in ("registry", "channels")
                if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            }
            try:
                answer = function(shell, **arguments)
            except EngineCIError as error:
                error.hint = on_the_same(error.hint, shell.named)
                raise
            finally:
                shell.close()
            return screen.show(answer)

        made: click.Command = command
        return made

    return make


def reason(*, required: bool) -> Callable[[F], F]:
    """`--reason TEXT`, recorded in the event log for ever: secrets in it are masked first."""
    return click.option(
        "--reason",
        metavar="TEXT",
        required=required,
        callback=lambda _context, _option, text: _recorded(text),
        help="Why; recorded in the event log.",
    )


def _recorded(text: str | None) -> str | None:
    """Secrets are masked, not refused: a rollback does not wait for a better reason."""
    if text is None:
        return None
    from engine_pipeline.promote.reason import recorded_reason
    from engine_pipeline.redact import looks_secret

    reason = recorded_reason(text)
    if looks_secret(text):
        click.echo("note: what looks like a secret in --reason is recorded as ***", err=True)
    return reason


def signing(function: F) -> F:
    """`--sign KEYFILE|keyless[:FILE]`, as `sign_with`."""
    return click.option(
        "--sign",
        "sign_with",
        metavar="KEYFILE|keyless",
        envvar="ENGINECTL_SIGNING_KEY",
        help="Sign what is made: with this private key, or as whoever CI says this is (`keyless`; "
        "`keyless:FILE` for a sigstore instance of your own) [env: ENGINECTL_SIGNING_KEY].",
    )(function)
