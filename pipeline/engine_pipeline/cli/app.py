"""The lazy command group: a table of verbs, so that `--help` imports click and nothing else."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

# verb: (one line of help, group). The module is `cli.commands.<verb>`.
VERBS: dict[str, tuple[str, str]] = {
    "validate": ("Check specs, suites and channels.yaml; print the spec's JSON Schema.", "Build"),
    "lock": ("Pin every reference of a spec; --check fails when the lock is stale.", "Build"),
    "explain": ("Name the inputs that differ between two specs, locks or build keys.", "Build"),
    "plan": ("Print what a build would do, and do nothing.", "Build"),
    "build": ("Build the engine, or reuse it, and record it.", "Build"),
    "inspect": ("Read what an engine's files say about themselves.", "Build"),
    "capacity": ("How much memory an engine needs, and what batch fits its SKU.", "Build"),
    "gate": ("Judge an engine with golden prompts and measured speed.", "Release"),
    "bakeoff": ("Compare engines and endpoints, and say which one to take.", "Release"),
    "bisect": ("Name the input that made a good engine bad.", "Release"),
    "suite": ("Bring captured chats into a suite, or write a suite's chats as lines.", "Release"),
    "golden": ("Record or review what a suite wants, from a named engine.", "Release"),
    "workload": ("Capture a load from a log of requests, or say what one is.", "Release"),
    "calibrate": ("Measure an engine against itself: where a gate's bars stand.", "Release"),
    "release": ("Cut a numbered release from an engine.", "Release"),
    "promote": ("Make a release live on a channel, if its policy says yes.", "Release"),
    "approve": ("Say yes to a release on a channel that asks for approvals.", "Release"),
    "rollback": ("Take a channel back to an earlier release.", "Release"),
    "hold": ("Keep promotions off a channel, or a release from gc; --lift ends it.", "Release"),
    "freeze": ("Stop promotions to a channel; --lift ends it.", "Release"),
    "deploy": ("Make targets serve what is live on their channel.", "Release"),
    "status": ("What is live where.", "Look"),
    "list": ("Engines in the registry, by product, precision, outcome, age.", "Look"),
    "history": ("The events of a channel.", "Look"),
    "whatwas": ("What was live on a channel at a time.", "Look"),
    "show": ("Everything known of an engine, a release, a channel or a report.", "Look"),
    "diff": ("What differs between two releases or engines.", "Look"),
    "drift": ("Compare what targets serve with their channels.", "Look"),
    "verify": ("Recompute every digest, or check a release against its policy.", "Care"),
    "key": ("Make a key pair to sign with, or show a public key.", "Care"),
    "sign": ("Sign what exists: builds, reports, releases.", "Care"),
    "gc": ("Remove what nothing keeps: a plan, then the trash, then for good.", "Care"),
    "export": ("Write an OCI image layout, a bill of materials, or one archive.", "Care"),
    "import": ("Bring a release from an archive into the registry.", "Care"),
    "transfer": ("Copy a release or an engine into another registry.", "Care"),
    "push": ("Push an engine or a release to an OCI registry.", "Care"),
    "pull": ("Bring an engine from an OCI registry into the registry.", "Care"),
    "check": ("Would an engine load on this or another node, rule by rule.", "Look"),
    "cache": ("Engines that this node keeps near, and what keeps each.", "Care"),
    "notify": ("Tell others what happened: signed webhooks, their log, a test call.", "Care"),
    "mirror": ("Bring an MLflow server up to this registry.", "Care"),
    "doctor": ("What this machine can build and serve, and why not.", "Care"),
}


class LazyGroup(click.Group):
    """Looks verbs up in VERBS and imports a command's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All verbs, in the order of the flow."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one verb's command."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"engine_pipeline.cli.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, but an unknown verb names the nearest ones."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS:
            import difflib

            near = difflib.get_close_matches(name, VERBS, n=2)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"no command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs by group, without importing them."""
        for group in dict.fromkeys(group for _, group in VERBS.values()):
            with formatter.section(group):
                formatter.write_dl([(v, text) for v, (text, g) in VERBS.items() if g == group])


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        from importlib.metadata import version

        click.echo(f"enginectl {version('engine-ci')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 our bug, 2 invalid, 3 judged and refused, 4 could not judge, "
    "5 refused by policy, 6 incompatible, 7 conflict, 8 not found, 9 unavailable (retry), "
    "10 drift, 11 integrity.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
def app() -> None:
    """Build, judge, promote and roll back inference engines."""


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends here."""
    from engine_pipeline.cli.answer import Screen

    screen = Screen(wants_json=_wants_json(args))
    try:
        result: Any = app.main(
            args=list(args) or ["--help"], prog_name="enginectl", standalone_mode=False, obj=screen
        )
    except BaseException as error:
        from engine_pipeline.cli.failures import report

        return report(error, screen)
    return int(result or 0)


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the caller wants JSON; known before parsing, so usage errors are JSON too."""
    pairs = pairwise([*args, ""])
    return any(a == "--output=json" or (a in {"--output", "-o"} and b == "json") for a, b in pairs)
