"""`enginectl push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("push")
@click.argument("what")
@click.argument("address")
@click.option(
    "--mount-from",
    multiple=True,
    metavar="REPOSITORY",
    help="Take blobs from this repository of the same registry instead of sending them.",
)
@click.option("--plain-http", is_flag=True, help="Talk to ADDRESS without TLS.")
def command(
    shell: Shell, what: str, address: str, mount_from: tuple[str, ...], plain_http: bool
) -> Answer:
    """Push WHAT, a release or an engine, to ADDRESS: oci://HOST/REPOSITORY[:TAG].

    Its digest there is its digest here. Reports, provenance and signatures go with it as referrers,
    and so do its records and the release. The login is that of docker login.
    """
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import size
    from engine_registry.oci.push import push
    from engine_registry.oci.reference import OciRef
    from engine_registry.oci.session import Remote
    from engine_registry.transfer_cargo import refs_of

    ref = OciRef.parse(address)
    if ref.digest is not None:
        raise click.UsageError("a digest is what a push gives: name a repository and perhaps a tag")
    found = shell.registry.resolve(what)
    shell.progress.phase("push", f"{what} to {ref}")
    pushed = push(
        shell.registry,
        refs_of(found.release) if found.release else found.engine,
        Remote(ref, plain_http=plain_http, mount_from=mount_from),
        tag=ref.tag,
        progress=lambda done, total: shell.progress.update(done, total, "bytes"),
    )
    document = {
        "engine": str(pushed.engine),
        "release": found.release.name if found.release else None,
        "address": ref.at(pushed.engine),
        "tag": ref.tag,
        "sent": {"blobs": pushed.sent, "bytes": pushed.sent_bytes},
        "held": {
            "blobs": pushed.blobs - pushed.sent,
            "bytes": pushed.size_bytes - pushed.sent_bytes,
        },
        "attached": pushed.attached,
    }

    def page(out: Page) -> None:
        named = f"release {found.release.name}" if found.release else f"engine {pushed.engine}"
        out.verdict("ok", f"{named} is in oci://{ref.host}/{ref.repository}")
        out.facts(
            [
                ("engine", pushed.engine if found.release else None),
                ("tag", ref.tag),
                ("sent", f"{pushed.sent} of {pushed.blobs} blobs, {size(pushed.sent_bytes)}"),
                ("attached", f"{pushed.attached} manifests"),
                ("next", f"enginectl pull {ref.at(pushed.engine)}"),
            ]
        )

    return Answer(document=document, page=page)
