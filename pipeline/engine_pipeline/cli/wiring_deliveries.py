"""The part of the composition root that decides who is told of what, and where what is due is kept.

What is due lies outside the registry, so that whoever tells others needs no right to write there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.deploy.drift import Drift
    from engine_pipeline.notify.settings import Notifications
    from engine_pipeline.notify.webhook import Webhook
    from engine_pipeline.tracking.mlflow.mirror import MlflowMirror
    from engine_pipeline.tracking.outbox import Outbox

NOTIFICATIONS = "notifications.yaml"
NOTIFY = "notify"  # the outbox of the webhooks


def registry_id(shell: Shell) -> str:
    """Tells this registry from others, however it is addressed."""
    return shell.registry.info().digest.short


def outbox(shell: Shell, name: str, state_dir: str | None) -> Outbox:
    """The outbox `name` of this registry, below --state-dir, or where programs keep their state."""
    from engine_pipeline.tracking.outbox import Outbox

    own = registry_id(shell)
    base = state_dir or os.environ.get("ENGINECTL_STATE")
    if base is None:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        base = str(Path(home) / "enginectl")
    return Outbox(Path(base).absolute() / own / f"{name}.sqlite", registry=own)


def notifications(shell: Shell) -> Notifications:
    """Who is told of what: notifications.yaml beside channels.yaml.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it is not valid.
    """
    from engine_pipeline.notify.settings import Notifications
    from engine_pipeline.yaml_file import validated

    path = shell.channels_file.parent / NOTIFICATIONS
    if not path.is_file():
        raise NotFound(
            f"no notifications: {path} does not exist",
            hint="write it: docs/notifications.md has an example",
            reference="notifications-missing",
        )
    return validated(path, Notifications, reference="notifications-invalid")


def note_drift(shell: Shell, found: Sequence[tuple[str, Drift]]) -> None:
    """Leave what a comparison of targets found to `enginectl notify run`.

    The registry does not know what targets serve, so this is the one thing that has to be left.
    It changes nothing for the comparison: trouble here is noted and no more.
    """
    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.tracking.facts import Kind, of_drift

    differing = [(name, drift) for name, drift in found if drift.differences]
    if not differing or not (shell.channels_file.parent / NOTIFICATIONS).is_file():
        return
    try:
        settings = notifications(shell)
        if not any(Kind.DRIFT in one.events for one in settings.destinations.values()):
            return
        box = outbox(shell, NOTIFY, None)
        box.register(settings.destinations)
        seen = [
            of_drift(
                name,
                str(drift.wanted.channel),
                [
                    {"what": d.what, "channel": d.channel, "target": d.target}
                    for d in drift.differences
                ],
                utc_now(),
                drift.wanted.event,
            )
            for name, drift in differing
        ]
        box.take_in(seen, {})
        box.close()
    except EngineCIError as error:
        shell.progress.note(f"nobody is told of this drift: {error.message}")


def webhooks(shell: Shell, settings: Notifications, names: Sequence[str]) -> list[Webhook]:
    """The receivers that are named, all of them if none is."""
    from importlib.metadata import version

    from engine_pipeline.cli.wiring import utc_now
    from engine_pipeline.notify.webhook import Webhook
    from engine_pipeline.redact import redact

    return [
        Webhook(
            name,
            settings.named(name),
            os.environ,
            utc_now,
            registry=redact(shell.registry_url),
            version=version("engine-ci"),
        )
        for name in names or settings.destinations
    ]


def mlflow_mirror(
    shell: Shell, uri: str | None, prefix: str, state_dir: str | None
) -> tuple[MlflowMirror, Outbox]:
    """The mirror of this registry in an MLflow server, and its outbox.

    Raises:
        InvalidInput: no address, one that is not a tracking server's, or a prefix that is no slug.
    """
    from engine_pipeline.tracking.mlflow.mirror import MlflowMirror
    from engine_pipeline.tracking.mlflow.names import check_prefix
    from engine_pipeline.tracking.mlflow.server import Address, MlflowServer

    check_prefix(prefix)
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise InvalidInput(
            "no MLflow server given",
            hint="name it with --uri or MLFLOW_TRACKING_URI, e.g. http://mlflow:5000",
            reference="mlflow-address",
        )
    address = Address.from_environment(uri, os.environ)
    mirror = MlflowMirror(
        shell.registry, MlflowServer(address), prefix=prefix, registry_id=registry_id(shell)
    )
    which = hashlib.sha256(f"{address.uri}\n{prefix}".encode()).hexdigest()[:12]
    return mirror, outbox(shell, f"mlflow-{which}", state_dir)
