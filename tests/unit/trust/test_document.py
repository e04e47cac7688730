"""What docs/trust.md tells people to run does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine_pipeline.trust.ed25519 import read_signing_key
from engine_pipeline.trust.key_files import read_trust_config, write_new_pair
from engine_pipeline.trust.signatures import sign_builds, sign_reports
from engine_registry.export import export_oci_layout
from engine_registry.testing.samples import sample_report

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "trust.md"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def marked(part: str) -> str:
    """The one script of the document, marked as tested, that has `part` in it."""
    scripts = re.findall(r"<!-- tested -->\n```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (script,) = [script for script in scripts if part in script]
    return script


def shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", script],
        cwd=directory,
        env={"PATH": path, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@needs_openssl
def test_the_key_id_is_what_the_document_says(tmp_path):
    _, _, key = write_new_pair("ci", tmp_path)
    (command,) = re.findall(r"^openssl pkey -pubin.*sha256sum$", DOCUMENT.read_text(), re.MULTILINE)
    assert shell(command, tmp_path).stdout.split()[0] == key.key_id


@needs_openssl
def test_a_key_made_by_openssl_signs(tmp_path):
    made = shell("openssl genpkey -algorithm ed25519 -out k && chmod 600 k", tmp_path)
    assert made.returncode == 0, made.stderr
    key = read_signing_key(tmp_path / "k")
    assert key.public.verifies(key.sign(b"x"), b"x")
    assert not key.public.verifies(key.sign(b"x"), b"y")


@needs_openssl
def test_the_commands_without_enginectl_verify_what_is_signed_and_find_a_change(
    tmp_path, registry, make_engine
):
    private, _, _ = write_new_pair("ci", tmp_path)
    engine = make_engine("one").digest
    sample_report(registry, engine)
    key = read_signing_key(private)
    sign_builds(registry, engine, key)
    sign_reports(registry, engine, key)
    export_oci_layout(registry, engine, tmp_path / "layout")
    script = marked("python3 - layout")

    done = shell(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Signature Verified Successfully") == 2
    assert f"https://slsa.dev/provenance/v1 {engine.hex}" in done.stdout
    for path in tmp_path.glob("*.signed"):
        path.write_bytes(path.read_bytes().replace(b'"subject"', b'"Subject"'))
    loop = script[script.index("for sig") :]
    changed = shell(loop, tmp_path)
    assert changed.stdout.count("Signature Verified Successfully") == 0


def test_the_commands_that_pin_the_public_root_of_trust_write_a_trust_config(tmp_path):
    filled = (
        "from sigstore.models import ClientTrustConfig; ClientTrustConfig.production(offline=True)"
    )
    assert shell(f"python3 -c '{filled}'", tmp_path).returncode == 0
    done = shell(marked("trusted_root.json"), tmp_path)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.rglob("sigstore.json")
    pinned = read_trust_config(written).trust(refreshed=False)
    assert pinned.trusted_root.get_fulcio_certs()
    assert pinned.signing_config.get_tlogs()
