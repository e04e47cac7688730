"""Whatever bytes come from outside: one clear error or a value, never a crash and never a hang.

Each parser is fed good examples that were damaged at random: bits flipped, pieces cut, doubled,
swapped, spliced in from other examples or from a list of what attackers like. A few hundred inputs
each here, over a million in all in the nightly run (`ENGINE_CI_FUZZ_INPUTS` sets the number each).
A failure names the seed; `damaged(examples, seed)` gives the same bytes again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.trtllm.engine_config import read_engine_config
from engine_pipeline.backends.trtllm.plan_header import read_plan_header
from engine_pipeline.deploy.node import read_node
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.promote.policy import Policies
from engine_pipeline.spec.load import load_spec
from engine_pipeline.spec.lock_file import read_lock
from engine_pipeline.trust.key_files import read_trust_config
from engine_pipeline.trust.standing import Standing, judge_bundle
from engine_pipeline.yaml_file import validated
from engine_registry import layout
from engine_registry.attestation import PREDICATE, parse_statement, statement_bytes
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import unseal
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
from tests.servers.sigstore import Instance
from tests.unit.trust.conftest import identified

ROOT = Path(__file__).resolve().parents[2]
INPUTS = int(os.environ.get("ENGINE_CI_FUZZ_INPUTS", "150"))
NIGHTLY_INPUTS = 70_000
HANG_S = 20  # a parser that takes longer for some kilobytes hangs
TOKENS = (
    b"../../etc/passwd\0/abs\0\xff\xfe\xed\xa0\x80\0&a [*a,*a,*a]\0{}\0[]\0null\0-1\0"
    b"99999999999999999999999999\x001e999\0NaN\0Infinity\0true\0\\u0000\0\\ud800\0!!python/object:os\0"
    b"\x1b[2J\0\xe2\x80\xae\0"
    b"<<: *x\0--help\0$(id)\0`id`\0;id\0%2e%2e\0sha256:\0sha512:00\0: : :\0\t\0\r\n\0\"\0'\0|\0>\0?"
).split(b"\0")


@dataclass(frozen=True)
class Parser:
    """One way in.

    Attributes:
        examples: good inputs.
        read: reads bytes; a directory to write to is at hand.
    """

    examples: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]


def damaged(examples: tuple[bytes, ...], seed: int) -> bytes:
    """A good example with one to six random injuries."""
    dice = random.Random(seed)
    data = bytearray(dice.choice(examples))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data) + 1)
        length = dice.choice((1, 1, 2, 4, 16, 64))
        match dice.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << dice.randrange(8)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length] * dice.choice((1, 2, 30))
            case 3:
                data[at:at] = dice.choice(TOKENS)
            case 4:
                data[at : at + length] = dice.choice(TOKENS)
            case 5:
                other = dice.choice(examples)
                start = dice.randrange(len(other) + 1)
                data[at : at + length] = other[start : start + dice.choice((8, 64, 256))]
            case 6:
                del data[at:]
            case _:
                nest = dice.choice((b"[", b"{", b"(", b"- ", b'{"a":', b"[["))
                data[at:at] = nest * dice.choice((3, 100, 3000))
    return bytes(data)


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def reads(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return reads


def suite_with(data: bytes, folder: Path) -> object:
    suite = folder / "suites" / "core"
    suite.mkdir(parents=True, exist_ok=True)
    (suite / "suite.yaml").write_bytes(SUITE)
    (suite / "cases.yaml").write_bytes(data)
    return load_suite(folder / "suites", "core")


SUITE = b"""\
schema_version: 1
name: core
owner: the tests
description: One case.
model: tiny
reference: {spec: tiny/cpu-fp16, note: written by hand}
sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 8}
cases: [cases.yaml]
"""
NODE = {
    "schema_version": 1,
    "name": "h100-a",
    "architecture": "x86_64",
    "driver": "590.44.01",
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "sm": 90, "memory_mib": 81559}],
}
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


def parsers() -> dict[str, Parser]:
    """Every parser of bytes that somebody else wrote."""
    kinds = stored()
    cases = texts("golden_prompts/smollm2-core/[!st]*.yaml")
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
    }


PARSERS = parsers()


@contextmanager
def no_hang() -> Iterator[None]:
    """An exception in whatever takes longer than HANG_S."""

    def stop(_: int, __: object) -> None:
        raise TimeoutError(f"no answer within {HANG_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def feed(kind: str, seeds: range, folder: Path) -> dict[str, int]:
    """Feed the parser; how many inputs were taken, and how many refused."""
    parser = PARSERS[kind]
    counts = {"taken": 0, "refused": 0}
    for seed in seeds:
        data = damaged(parser.examples, seed)
        try:
            with no_hang():
                parser.read(data, folder)
            counts["taken"] += 1
        except EngineCIError as refusal:
            counts["refused"] += 1
            message = refusal.message
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {type(error).__name__}: {error}") from error
        else:
            continue
        assert message, f"{kind}, seed {seed}"
        assert message.isprintable(), f"{kind}, seed {seed}: not one printable line: {message!r}"
    return counts


@pytest.fixture
def scratch() -> Iterator[Path]:
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_good_examples_are_taken(kind, scratch):
    for example in PARSERS[kind].examples:
        if kind == "suite" and example.startswith(b"schema_version"):
            continue  # the head of a suite, here only to be spliced in
        if kind in {"plan header", "gguf"}:
            continue  # small enough to be damaged everywhere; real ones are read elsewhere
        PARSERS[kind].read(example, scratch)


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_damaged_input_gives_one_clear_error_or_a_value(kind, scratch, proved):
    counts = feed(kind, range(INPUTS), scratch)
    assert sum(counts.values()) == INPUTS
    assert counts["refused"]
    proved(str(counts))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_over_a_million_damaged_inputs_in_all(kind, scratch, proved):
    counts = feed(kind, range(INPUTS, INPUTS + NIGHTLY_INPUTS), scratch)
    proved(str(counts))
    assert len(PARSERS) * NIGHTLY_INPUTS >= 1_000_000
