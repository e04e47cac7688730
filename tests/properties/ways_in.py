"""The table of parsers: every way in for bytes that somebody else wrote, with good examples.

Fed by `test_hostile_input` with damaged examples.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from pydantic import BaseModel

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.trtllm.engine_config import read_engine_config
from engine_pipeline.backends.trtllm.plan_header import read_plan_header
from engine_pipeline.bakeoff.file import BakeoffFile
from engine_pipeline.deploy.node import read_node
from engine_pipeline.gates import suite_import
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.prefix import PrefixFile
from engine_pipeline.gates.report import listing
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.gates.template_file import load_template
from engine_pipeline.notify.settings import Notifications
from engine_pipeline.promote.evidence import read_report
from engine_pipeline.promote.policy import Policies
from engine_pipeline.spec.load import load_spec
from engine_pipeline.spec.lock_file import read_lock
from engine_pipeline.targets.definition import Targets
from engine_pipeline.trust.key_files import read_trust_config
from engine_pipeline.trust.standing import Standing, judge_bundle
from engine_pipeline.workload.capture import capture
from engine_pipeline.workload.file import load_workload, read_log, workload_text
from engine_pipeline.yaml_file import validated
from engine_registry import layout
from engine_registry.attestation import PREDICATE, parse_statement, statement_bytes
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json, unseal
from engine_registry.dsse import read_envelope
from engine_registry.errors import EngineCIError, IntegrityError
from engine_registry.events import Event
from engine_registry.manifest import read_manifest
from engine_registry.record import Record, Release
from engine_registry.refs import ChannelRef, ReleaseRef
from engine_registry.registry import Registry
from engine_registry.testing.samples import (
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from tests.properties.answered import answers
from tests.properties.parser import Parser
from tests.servers.sigstore import Instance
from tests.unit.cli.conftest import SUITE
from tests.unit.gates.report_samples import NASTY, in_turn, report, speed
from tests.unit.trust.conftest import identified

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 20  # a parser that takes longer for some kilobytes hangs


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def reads(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return reads


def suite_with(data: bytes, folder: Path) -> object:
    suite = folder / "suites" / "core"
    suite.mkdir(parents=True, exist_ok=True)
    (suite / "suite.yaml").write_text(SUITE)
    (suite / "cases.yaml").write_bytes(data)
    return load_suite(folder / "suites", "core")


NODE = {
    "schema_version": 1,
    "name": "h100-a",
    "architecture": "x86_64",
    "driver": "590.44.01",
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "sm": 90, "memory_mib": 81559}],
}
CHATS = (
    {"messages": [{"role": "user", "content": "Capital of Japan?"}], "ideal": "Tokyo"},
    {
        "request": {"messages": [{"role": "user", "content": "One?"}], "temperature": 0.5},
        "response": {"choices": [{"message": {"role": "assistant", "content": "1"}}]},
    },
    {
        "body": {
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "Time?"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
            ],
            "response_format": {"type": "json_object"},
        }
    },
    {"prompt": "Once upon a time", "reference": "there was"},
)
REQUESTS = (
    {"timestamp": 1764590400.5, "prompt_tokens": 120, "completion_tokens": 30},
    {"time": "2026-12-01T12:00:01Z", "usage": {"input_tokens": 90, "output_tokens": 8}},
    {"timestamp": 2000, "input_length": 640, "output_length": 12, "hash_ids": [1, 2, 3]},
    {
        "ts": 1764590403,
        "messages": [{"role": "user", "content": "Capital of Japan? " * 9}],
        "usage": {
            "prompt_tokens": 60,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
    },
)
TARGETS = b"""\
schema_version: 1
targets:
  here: {kind: directory, channel: tiny/cpu-x86-64-v3/prod, path: /srv/models/tiny, keep: 2}
  there:
    kind: triton
    channel: tiny/h100-sxm-80gb/prod
    path: /srv/triton
    url: http://127.0.0.1:8000
    templates: /srv/all_models
"""
NOTIFICATIONS = b"""\
schema_version: 1
destinations:
  room:
    url: https://room.example/hook
    secrets: [ROOM_SECRET]
    events: [promoted, rolled-back]
    products: ["tiny/*"]
    timeout: 10s
"""
WORKLOAD = b"""\
schema_version: 1
name: chat
prompt_tokens: {kind: lognormal, median: 90, sigma: 0.7, high: 400}
output_tokens: {kind: histogram, edges: [1, 8, 64], counts: [3, 5]}
shared_prefix: {share: 0.3, prefixes: 2}
arrival: {kind: bursts, rate_per_s: 2.5, size: 4}
requests: 300
seed: 7
"""
REPORT = report(performance=speed(100.0), paired=in_turn(slower=1.0))
ENVELOPE = {
    "payload": "eyJhIjoxfQ==",
    "payloadType": "application/vnd.in-toto+json",
    "signatures": [{"keyid": "a" * 64, "sig": "QUJD"}],
}


def texts(pattern: str) -> tuple[bytes, ...]:
    found = tuple(path.read_bytes() for path in sorted(ROOT.glob(pattern)))
    assert found, pattern
    return found


def stored() -> dict[str, tuple[bytes, ...]]:
    """Documents and manifests as a registry really has them, by kind."""
    clock = TickingClock()
    registry = Registry(memory_stores(clock), clock)
    engine = sample_engine(registry, "one")
    release = sample_release(registry, engine)
    sample_event(registry, sample_promotion(release))
    read = registry.stores.documents.read
    record = engine.records[0]
    return {
        "record": (read(layout.record(engine.digest, record.build_key)),),
        "release": (read(layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))),),
        "event": (read(layout.event(SAMPLE_CHANNEL, 1)),),
        "manifest": (engine.manifest.to_bytes(),),
        "statement": (
            json.dumps(
                {
                    "_type": "https://in-toto.io/Statement/v1",
                    "subject": [{"name": "x", "digest": {"sha256": "a" * 64}}],
                    "predicateType": "https://slsa.dev/provenance/v1",
                    "predicate": {},
                }
            ).encode(),
        ),
    }


def keyless() -> dict[str, Parser]:
    """Bundles judged for real, and the roots of trust that they are judged under."""
    instance = Instance()
    known = identified(instance)
    engine = Digest.of(b"an engine")
    statement = statement_bytes("x", engine, PREDICATE, {})
    bundle = json.dumps(instance.bundle(statement, instance.since)).encode()

    def judge(data: bytes, _: Path) -> object:
        seen = judge_bundle(data, engine, engine, (known,))
        for one in seen:
            assert one.says.isprintable()
            if one.standing is not Standing.GOOD:
                raise IntegrityError(one.says, hint="as the finding has it")
            verifier = known.verifier
            assert verifier.verified(data, verifier.certified(data)) == statement
        return seen

    def verify(path: Path) -> object:
        other = read_trust_config(path)
        return other.verified(bundle, other.certified(bundle))

    config = json.dumps(instance.trust_config()).encode()
    return {
        "bundle": Parser((bundle,), judge),
        "trust config": Parser((config,), in_file("corp.json", verify)),
    }


def gguf() -> bytes:
    """A small header: version 3, one tensor, a few keys."""

    def text(value: bytes) -> bytes:
        return len(value).to_bytes(8, "little") + value

    keys = [
        text(b"general.architecture") + (8).to_bytes(4, "little") + text(b"llama"),
        text(b"llama.context_length") + (4).to_bytes(4, "little") + (2048).to_bytes(4, "little"),
        text(b"tokenizer.ggml.tokens")
        + (9).to_bytes(4, "little")
        + (8).to_bytes(4, "little")
        + (2).to_bytes(8, "little")
        + text(b"a")
        + text(b"b"),
    ]
    tensor = (
        text(b"output.weight")
        + (2).to_bytes(4, "little")
        + (32).to_bytes(8, "little")
        + (2).to_bytes(8, "little")
        + (0).to_bytes(4, "little")
        + (0).to_bytes(8, "little")
    )
    head = b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little")
    return head + len(keys).to_bytes(8, "little") + b"".join(keys) + tensor + bytes(512)


def written() -> dict[str, Parser]:
    """What people write and machines store."""
    kinds = stored()
    cases = texts("golden_prompts/smollm2-core/[!pst]*.yaml")
    engine_config = json.dumps(
        {
            "version": "1.2.1",
            "pretrained_config": {
                "architecture": "LlamaForCausalLM",
                "dtype": "float16",
                "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            },
            "build_config": {"max_batch_size": 8, "max_input_len": 1024, "max_seq_len": 2048},
        }
    ).encode()

    def name(data: bytes, _: Path) -> object:
        text = data.decode("utf-8", "surrogateescape")
        form = Digest if text.startswith("sha") else ReleaseRef if ":" in text else ChannelRef
        return form.parse(text)

    return {
        "spec": Parser(texts("build_specs/*/*.yaml"), in_file("spec.yaml", load_spec)),
        "lock": Parser(texts("build_specs/*/*.lock.json"), in_file("a.lock.json", read_lock)),
        "channels": Parser(
            (ROOT.joinpath("channels.yaml").read_bytes(),),
            in_file("channels.yaml", lambda path: validated(path, Policies)),
        ),
        "suite": Parser(cases, suite_with),
        "node": Parser((json.dumps(NODE).encode(),), in_file("node.json", read_node)),
        "record": Parser(kinds["record"], lambda data, _: unseal(data, Record, "records/x")),
        "release": Parser(kinds["release"], lambda data, _: unseal(data, Release, "releases/x")),
        "event": Parser(kinds["event"], lambda data, _: unseal(data, Event, "events/x")),
        "manifest": Parser(kinds["manifest"], lambda data, _: read_manifest(data, Digest.of(data))),
        "statement": Parser(kinds["statement"], lambda data, _: parse_statement(data)),
        "envelope": Parser((json.dumps(ENVELOPE).encode(),), lambda data, _: read_envelope(data)),
        "gguf": Parser((gguf(),), in_file("model.gguf", read_header)),
        "engine config": Parser(
            (engine_config,), lambda data, _: read_engine_config(data, "config.json")
        ),
        "plan header": Parser(
            (b"ptrt" + bytes(range(64)),), in_file("rank0.engine", read_plan_header)
        ),
        "name": Parser((b"tiny/cpu/prod", b"tiny/cpu:7", b"sha256:" + b"a" * 64), name),
        **keyless(),
        **configured(),
    }


def configured() -> dict[str, Parser]:
    """Files that say where to go, what to ask and what was measured."""

    def yaml(kind: type[BaseModel]) -> Callable[[bytes, Path], object]:
        return in_file("some.yaml", lambda path: validated(path, kind))

    def report(data: bytes, _: Path) -> object:
        attachment = SimpleNamespace(read_attachment=lambda _: {"report.json": data})
        registry = cast("Registry", SimpleNamespace(engines=attachment))
        found = read_report(registry, REPORT.judged_engine, Digest.of(data))
        return to_markdown(found), listing(found)

    chats = "".join(json.dumps(chat) + "\n" for chat in CHATS).encode()
    requests = "".join(json.dumps(line) + "\n" for line in REQUESTS).encode()
    return {
        "bakeoff": Parser(texts("golden_prompts/bakeoffs/*.yaml"), yaml(BakeoffFile)),
        "targets": Parser((TARGETS,), yaml(Targets)),
        "notifications": Parser((NOTIFICATIONS,), yaml(Notifications)),
        "prefixes": Parser(texts("golden_prompts/*/prefixes.yaml"), yaml(PrefixFile)),
        "template": Parser(
            texts("golden_prompts/*/template.yaml"),
            in_file("template.yaml", lambda path: load_template(path.parent)),
        ),
        "workload": Parser((WORKLOAD,), in_file("workload.yaml", load_workload)),
        "report": Parser((canonical_json(REPORT), canonical_json(NASTY)), report),
        "suite import": Parser((chats,), in_file("log.jsonl", imported)),
        "workload log": Parser((requests,), in_file("log.jsonl", captured)),
        "workload log, compressed": Parser(
            (gzip.compress(requests, mtime=0),), in_file("log.jsonl.gz", captured)
        ),
    }


def imported(path: Path) -> object:
    """A log as a suite takes it, up to the text of its files."""
    found = suite_import.read_log(
        path,
        tag="captured",
        ideal_as="contains",
        limit=100,
        skips_invalid=False,
        keeps_secrets=True,
    )
    return suite_import.case_files(found.cases.values(), "captured")


def captured(path: Path) -> object:
    """A log as a workload, up to the text of its file."""
    return workload_text(capture(read_log(path), name="captured"))


@contextmanager
def room() -> Iterator[Path]:
    """A directory for what a parser reads from, in memory where that goes."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def fed(parser: Parser, data: bytes, folder: Path) -> bool:
    """Whether the parser took the bytes; a refusal is one printable line, anything else a bug."""
    try:
        parser.read(data, folder)
    except EngineCIError as error:
        refusal = error.message
    else:
        return True
    assert refusal.isprintable(), f"not one printable line: {refusal!r}"
    assert refusal
    return False


PARSERS = {**written(), **answers()}
