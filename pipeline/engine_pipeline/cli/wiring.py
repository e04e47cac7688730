"""The composition root: the only place that picks adapters and reads the environment.

A `Shell` is made per command; each part is built when first asked for, so `status` never loads a
hub client and `--help` loads nothing.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_pipeline.build.machine import Machine
    from engine_pipeline.build.step_cache import StepCache
    from engine_pipeline.build.workshop import BuildBackend
    from engine_pipeline.cli.github import GitHubJob
    from engine_pipeline.compat.node import Node
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.report import Device
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_pipeline.promote.findings import Finding, Wanted
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy, Policies
    from engine_pipeline.sources.port import ImageResolver
    from engine_pipeline.spec.lock import LockedTokenizer
    from engine_pipeline.spec.model import BuildSpec
    from engine_pipeline.targets.definition import Definition
    from engine_pipeline.targets.port import Target
    from engine_pipeline.trust.signers import Signer
    from engine_pipeline.trust.standing import KnownSigner, Signatures
    from engine_pipeline.workload.model import Workload
    from engine_registry.digest import Digest
    from engine_registry.index import Index
    from engine_registry.record import Actor, Record, Release
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry


def utc_now() -> datetime:
    """The one clock of the process."""
    return datetime.now(UTC)


class Shell:
    """What a command needs, wired to this machine."""

    def __init__(self, *, registry_url: str, channels_file: str, cache_dir: str | None) -> None:
        self.registry_url = registry_url
        self.channels_file = Path(channels_file)
        self._cache_dir = cache_dir
        # Options of this command line that commands to run next need as well.
        self.named: dict[str, str] = {}

    def under(self, channels_file: Path) -> Shell:
        """The same registry and cache, under other policies and what lies beside them."""
        return Shell(
            registry_url=self.registry_url,
            channels_file=str(channels_file),
            cache_dir=self._cache_dir,
        )

    @cached_property
    def registry(self) -> Registry:
        """The registry named by --registry."""
        from engine_pipeline.cli.wiring_cache import near
        from engine_registry.registry import open_registry

        return open_registry(self.registry_url, utc_now, near(self))

    @cached_property
    def actor(self) -> Actor:
        """Who runs this process."""
        from engine_pipeline.actor import actor_from

        return actor_from(os.environ, utc_now())

    @cached_property
    def desk(self) -> Desk:
        """Where channels are moved from."""
        from engine_pipeline.promote.moves import Desk

        return Desk(
            registry=self.registry,
            actor=self.actor,
            clock=utc_now,
            signatures=self.signatures,
            node=self.node,
        )

    def node(self, name: str) -> Node:
        """The node that a file beside channels.yaml describes."""
        from engine_pipeline.deploy.node import read_node

        return read_node(self.channels_file.parent / name)

    @cached_property
    def keys(self) -> tuple[KnownSigner, ...]:
        """Keys and identities of `trust:` in channels.yaml; no library loaded if it has none."""
        from engine_pipeline.trust.key_files import load_keys

        return load_keys(self.policies.trust, self.channels_file.parent)

    def signatures(self, engine: Digest) -> Signatures:
        """Every signature attached to an engine, judged under the keys of channels.yaml."""
        from engine_pipeline.trust.signatures import read_signatures

        return read_signatures(self.registry, engine, self.keys)

    @staticmethod
    def signer(how: str | None) -> Signer | None:
        """Who signs: a private key's file, or `keyless[:FILE]`; None if nobody is named."""
        if how is None:
            return None
        from engine_pipeline.trust.signers import signer_named

        return signer_named(how, os.environ, utc_now)

    @cached_property
    def index(self) -> Index:
        """The index of the registry, in the cache directory."""
        from engine_pipeline.gates.report import CREATED, GATE, OUTCOME
        from engine_registry.digest import Digest
        from engine_registry.index import GateNames, Index
        from engine_registry.manifest import REPORT_ARTIFACT

        names = GateNames(
            artifact_type=REPORT_ARTIFACT, gate=GATE, outcome=OUTCOME, created=CREATED
        )
        of = Digest.of(self.registry_url.encode()).short
        return Index(self.registry, self.cache_dir / "index" / f"{of}.sqlite", names)

    @cached_property
    def policies(self) -> Policies:
        """The policies of channels.yaml."""
        from engine_pipeline.promote.policy import Policies
        from engine_pipeline.yaml_file import validated

        place = os.path  # which says no where it may not look
        if place.isdir(self.channels_file):
            raise InvalidInput(
                f"policies: {self.channels_file} is a directory, want a file",
                hint=f"name the file with --channels {self.channels_file / 'channels.yaml'}",
                reference="channels-unreadable",
            )
        if not place.lexists(self.channels_file):
            raise NotFound(
                f"no policies: {self.channels_file} does not exist",
                hint="run from the project's root, or name the file with --channels",
                reference="channels-missing",
            )
        return validated(self.channels_file, Policies)

    def policy_of(self, ref: ChannelRef) -> ChannelPolicy | None:
        """The rules of a channel; None where channels.yaml is not there or does not name it."""
        try:
            return self.policies.for_channel(ref)
        except EngineCIError as error:
            if error.name in {"channels-missing", "no-policy", "unknown-channel"}:
                return None
            raise

    @property
    def suites_dir(self) -> Path:
        """Where golden prompts are: beside channels.yaml."""
        return self.channels_file.parent / "golden_prompts"

    def suite(self, name: str) -> Suite:
        """Load the suite `name`."""
        from engine_pipeline.gates.suite_file import load_suite

        return load_suite(self.suites_dir, name)

    def workloads(self, lanes: Mapping[str, LaneBars] | None) -> dict[str, Workload]:
        """Those of the lanes that are in files, by lane; each is the one that is pinned."""
        from engine_pipeline.workload.file import pinned_workload

        pins = {name: bars.workload_file for name, bars in (lanes or {}).items()}
        return {
            name: pinned_workload(self.channels_file.parent, pin.file, pin.digest)
            for name, pin in pins.items()
            if pin is not None
        }

    def wanted(self, policy: ChannelPolicy) -> dict[str, Wanted]:
        """What each gate of `policy` must have been judged under, as the files stand now."""
        from engine_pipeline.promote.findings import Wanted

        return {
            name: Wanted(
                policy=self.policies.gate(name).digest,
                suite=self.suite(self.policies.gate(name).suite).digest,
            )
            for name in policy.gates
        }

    @cached_property
    def progress(self) -> Progress:
        """Progress on standard error."""
        from engine_pipeline.cli.heartbeat import progress_for_stderr

        return progress_for_stderr()

    @cached_property
    def cache_dir(self) -> Path:
        """The directory of the step cache and of workspaces."""
        if self._cache_dir:
            return Path(self._cache_dir).absolute()
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return Path(base) / "enginectl"

    @cached_property
    def step_cache(self) -> StepCache:
        """Outputs of finished steps."""
        from engine_pipeline.build.step_cache import StepCache

        return StepCache(self.cache_dir)

    @cached_property
    def machine(self) -> Machine:
        """What this machine is."""
        from engine_pipeline.build.machine import this_machine

        return this_machine()

    def backend(self, kind: str) -> BuildBackend:
        """The backend of an engine kind; raises InvalidInput for one that is not there."""
        if kind == "llama-cpp":
            from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend

            return LlamaCppBackend()
        if kind == "trtllm-engine":
            from engine_pipeline.backends.trtllm.backend import TrtllmBackend

            return TrtllmBackend()
        if kind == "trtllm-checkpoint":
            from engine_pipeline.backends.checkpoint.backend import CheckpointBackend

            return CheckpointBackend()
        raise InvalidInput(
            f"no backend for engine kind {str(kind)!r}; there are: {', '.join(BACKEND_KINDS)}",
            hint="set backend.kind of the spec to one of them",
            reference="no-backend",
        )

    def target(self, definition: Definition) -> Target:
        """The target that `targets.yaml` or a command line describes."""
        from engine_pipeline.targets.kinds import open_target

        return open_target(definition, who=f"{self.actor.name} (process {os.getpid()})")

    def fit(
        self, definition: Definition, node: Path | None
    ) -> Callable[[Release], tuple[Finding, ...]]:
        """The rules of what loads on a target: on a described node, or on this machine.

        What the channel's policy accepts untested is accepted.
        """
        from engine_pipeline.compat.fit import STRICT, accepting
        from engine_pipeline.deploy.node import fit_of_release, read_node

        if node is None and definition.node is not None:
            node = self.channels_file.parent / definition.node
        policy = self.policy_of(definition.ref)
        return fit_of_release(
            self.registry,
            read_node(node) if node is not None else self.machine,
            accepts=accepting(policy.accepts) if policy is not None else STRICT,
            serves_its_image=definition.kind == "directory",
        )

    def device(self, record: Record) -> Device:
        """This machine, as a report names it; raises Incompatible if it is none of the SKU."""
        from engine_pipeline.gates.device import device_for

        return device_for(record.platform, self.machine)

    @staticmethod
    def images(spec: BuildSpec) -> ImageResolver | None:
        """What looks image tags up; None for a spec that names no tag, so no daemon is asked."""
        if spec.backend.image is None or "@" in spec.backend.image:
            return None
        from engine_pipeline.sources.images import DockerImages

        return DockerImages()

    @staticmethod
    def gguf_tokenizer(path: Path) -> LockedTokenizer | None:
        """The tokenizer inside a GGUF file, for locks of GGUF sources."""
        from engine_pipeline.backends.llama_cpp.gguf_header import read_header
        from engine_pipeline.backends.llama_cpp.tokenizer import header_tokenizer

        return header_tokenizer(read_header(path))

    @cached_property
    def github_job(self) -> GitHubJob | None:
        """The GitHub job that this process runs in; None elsewhere."""
        from engine_pipeline.cli.github import github_job

        return github_job(os.environ)

    def close(self) -> None:
        """Leave the terminal as it was."""
        close = getattr(self.__dict__.get("progress"), "close", None)
        if close is not None:
            close()


BACKEND_KINDS = ("llama-cpp", "trtllm-engine", "trtllm-checkpoint")
