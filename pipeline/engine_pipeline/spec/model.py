"""A build spec: the values a person writes in `build_specs/<model>/<target>-<precision>.yaml`.

Pure. Reading YAML and telling line numbers is `load`'s; pinning references is `resolve`'s; which
SKU can do which precision is `hardware`'s and each backend's `check`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from engine_registry.documents import Value
from engine_registry.record import Parallelism
from engine_registry.refs import Slug

PositiveInt = Annotated[int, Field(ge=1)]
_HUB_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
SOURCE_PATTERN = (
    rf"^(hf://(datasets/)?{_HUB_NAME}/{_HUB_NAME}"
    r"|package://[a-z0-9][a-z0-9._-]*|file://[^\x00-\x1f]+)$"
)
SourceUri = Annotated[str, StringConstraints(pattern=SOURCE_PATTERN, max_length=512)]
# Never begins with a dash, so that no tool takes it for an option.
Revision = Annotated[
    str,
    StringConstraints(min_length=1, max_length=255, pattern=r"^[^\s\x00-\x1f-][^\s\x00-\x1f]*$"),
]
FilePattern = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class EngineKind(StrEnum):
    """What kind of engine a backend makes."""

    TRTLLM_ENGINE = "trtllm-engine"
    TRTLLM_CHECKPOINT = "trtllm-checkpoint"
    HF_CHECKPOINT = "hf-checkpoint"
    LLAMA_CPP = "llama-cpp"


class WeightPrecision(StrEnum):
    """Precision of the weights, as the spec names it; the recipe says which scheme."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    NVFP4 = "nvfp4"


class CachePrecision(StrEnum):
    """Precision of the KV cache."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"


class ModelSpec(Value):
    """Which model.

    Attributes:
        name: what releases of this model are called, e.g. `smollm2-135m-instruct`.
        source: `hf://org/repo`, `file:///dir` (or `file://dir`, relative to the spec), `package://name`.
        revision: branch, tag or commit for `hf://`; the version for `package://`; for `file://`
            any label, since the files' digests pin it.
        files: glob patterns of files to take; empty takes everything the backend needs.
        allow_code: accept code files of the repository, at a pinned commit only.
    """

    name: Slug
    source: SourceUri
    revision: Revision
    files: tuple[FilePattern, ...] = ()
    allow_code: bool = False

    @field_validator("source")
    @classmethod
    def _is_no_dataset(cls, source: str) -> str:
        if source.startswith("hf://datasets/"):
            msg = f"{source} is a dataset; a model is hf://org/repo"
            raise ValueError(msg)
        return source


class TargetSpec(Value):
    """Where the engine runs: one SKU, so many ranks.

    Attributes:
        sku: GPU board or CPU instruction set, e.g. `h100-sxm-80gb`, `cpu-x86-64-v3`.
        parallelism: ranks, tensor × pipeline.
    """

    sku: Slug
    parallelism: Parallelism = Parallelism()


class PrecisionSpec(Value):
    """How weights and KV cache are stored.

    Attributes:
        weights: precision of the weights.
        kv_cache: precision of the KV cache.
        recipe: the backend's scheme, e.g. `q8_0`, `q4_1`, `int4_awq`; left out, its default.
        allow_fallback: tensor types that a quantisation may fall back to, e.g. `q5_0`.
    """

    weights: WeightPrecision
    kv_cache: CachePrecision = CachePrecision.FP16
    recipe: Slug | None = None
    allow_fallback: tuple[Slug, ...] = ()


class BackendSpec(Value):
    """Which tool makes and loads the engine.

    Attributes:
        kind: the kind of engine to make.
        version: exact version of the runtime (`xllamacpp`, TensorRT-LLM).
        image: container image reference for runners that use one; `lock` pins its digest.
        options: further flags of the backend, each an input of the build key.
    """

    kind: EngineKind
    version: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9][0-9A-Za-z.+_-]*$")]
    image: (
        Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[a-z0-9][\w.:/@-]*$")] | None
    ) = None
    options: dict[Slug, bool | int | float | str] = {}


class LimitsSpec(Value):
    """Sizes the engine is built and served for, in sequences and tokens.

    Attributes:
        max_batch_size: sequences decoded at once.
        max_input_tokens: longest prompt.
        max_sequence_tokens: prompt and answer together.
        max_batch_tokens: tokens of one forward pass over all sequences.
    """

    max_batch_size: PositiveInt
    max_input_tokens: PositiveInt
    max_sequence_tokens: PositiveInt
    max_batch_tokens: PositiveInt

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_input_tokens >= self.max_sequence_tokens:
            msg = (
                f"max_input_tokens {self.max_input_tokens} leaves no room for an answer within "
                f"max_sequence_tokens {self.max_sequence_tokens}"
            )
            raise ValueError(msg)
        return self


class CalibrationSpec(Value):
    """Data that quantisation scales are taken from; pinned like the model.

    Attributes:
        source: `hf://datasets/org/repo`, `hf://org/repo`, `file:///dir` or `package://name`.
        revision: as the model's.
        samples: how many samples are used, the first ones.
        max_tokens: where each sample is cut.
    """

    source: SourceUri
    revision: Revision
    samples: PositiveInt = 512
    max_tokens: PositiveInt = 512


class BuildSpec(Value):
    """One engine to build: a model revision on a target at a precision.

    Attributes:
        schema_version: 1.
        model: which model.
        target: where the engine runs.
        precision: how weights and KV cache are stored.
        backend: which tool makes and loads the engine.
        limits: sizes the engine is built and served for.
        calibration: data that quantisation scales are taken from, where the recipe needs any.
        serving: further settings of the server; not an input of the engine.
        suites: golden prompts that judge the engine, by name; not an input of the engine.
    """

    schema_version: Literal[1]
    model: ModelSpec
    target: TargetSpec
    precision: PrecisionSpec
    backend: BackendSpec
    limits: LimitsSpec
    calibration: CalibrationSpec | None = None
    serving: dict[Slug, Any] = {}
    suites: Annotated[tuple[Slug, ...], Field(min_length=1)]

    @property
    def name(self) -> str:
        """`<model>/<target>-<precision>`, for people."""
        return f"{self.model.name}/{self.target.sku}-{self.precision.weights}"
