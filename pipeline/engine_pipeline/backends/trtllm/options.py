"""`backend.options` of a `trtllm-engine` spec: which there are, and what they may say. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.trtllm.build_flags import build_versions, flags_of
from engine_pipeline.backends.trtllm.families import examples_root, family_called
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_pipeline.backends.trtllm.build_flags import BuildFlag

_Value = bool | int | float | str
_SWITCH = ("enable", "disable")
# What config.json calls the fields that the builder may set otherwise than asked.
_FIELD = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingCacheInput:
    """A timing cache to start from: measured tactics, tied to TensorRT version and board."""

    path: str
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options by their meaning.

    Attributes:
        family: model family, for architectures that the table does not know.
        dtype: type of whatever is not quantised; None leaves it to the recipe.
        examples_dir: where the conversion scripts are.
        strip_plan: build without weights and refit; see `steps`.
        fast_build: let the runtime manage the weights.
        group_size: columns per scale of AWQ and GPTQ.
        moe_expert: ranks that experts are spread over, of the tensor-parallel ones.
        allow_adjusted: fields of `build_config` that the builder may set otherwise than asked.
        flags: flags of `trtllm-build` that the spec sets, by their own names.
    """

    family: str | None = None
    dtype: str | None = None
    examples_dir: str = field(default_factory=examples_root)
    strip_plan: bool = False
    fast_build: bool = False
    timing_cache: TimingCacheInput | None = None
    group_size: int = 128
    calibration_batch_size: int = 1
    calibration_seed: int = 1234
    moe_expert: int = 1
    allow_adjusted: frozenset[str] = frozenset()
    flags: Mapping[str, str] = field(default_factory=dict)


def read_options(options: Mapping[str, _Value], version: str) -> EngineOptions:
    """Options of a spec for this release.

    Raises:
        InvalidInput: `unknown-value`, `option-value-invalid`, `option-incomplete`.
        Incompatible: `option-not-in-release`.
    """
    own = {name: read(name, options[name]) for name, read in _OWN.items() if name in options}
    given = {name.replace("-", "_"): flag for name, flag in options.items() if name not in _OWN}
    flags = {name: _flag_value(name, value, version) for name, value in given.items()}
    timing_cache = None
    path, digest = own.get("timing-cache"), own.get("timing-cache-digest")
    if path is not None and digest is not None:
        timing_cache = TimingCacheInput(path=path, digest=digest)
    elif path is not None or digest is not None:
        raise InvalidInput(
            "backend.options: timing-cache and timing-cache-digest go together, the spec has "
            f"{'timing-cache' if path is not None else 'timing-cache-digest'} only",
            hint="`sha256sum FILE` gives the digest; write it as sha256:<hex>",
            reference="option-incomplete",
        )
    if own.get("strip-plan") and own.get("fast-build"):
        raise InvalidInput(
            "backend.options: strip-plan leaves the weights out of the plan, fast-build puts them "
            "into a file of their own; both are set",
            hint="remove one of them",
            reference="options-contradict",
        )
    return EngineOptions(
        family=own.get("family"),
        dtype=own.get("dtype"),
        examples_dir=own.get("examples-dir") or examples_root(),
        strip_plan=own.get("strip-plan", False),
        fast_build=own.get("fast-build", False),
        timing_cache=timing_cache,
        group_size=own.get("group-size", 128),
        calibration_batch_size=own.get("calibration-batch-size", 1),
        calibration_seed=own.get("calibration-seed", 1234),
        moe_expert=own.get("moe-expert-parallel", 1),
        allow_adjusted=own.get("allow-adjusted", frozenset()),
        flags=flags,
    )


def known_options(version: str) -> tuple[str, ...]:
    """Every option that may be set for this release, sorted."""
    settable = (flag.name.replace("_", "-") for flag in flags_of(version) if flag.option)
    return tuple(sorted({*_OWN, *settable}))


def _flag_value(name: str, value: _Value, version: str) -> str:
    flag = _settable(version).get(name)
    option = name.replace("_", "-")
    if flag is None:
        elsewhere = [v for v in build_versions() if name in _settable(v)]
        if elsewhere:
            raise Incompatible(
                f"backend.options.{option}: trtllm-build {version} has no --{name}; "
                f"these have it: {', '.join(elsewhere)}",
                hint=f"remove `{option}`, or set backend.version to one of those",
                reference="option-not-in-release",
            )
        raise InvalidInput(
            f"backend.options: unknown {option!r}; known for trtllm-engine {version}: "
            + ", ".join(known_options(version)),
            hint="use one of these, or remove it",
            reference="unknown-value",
        )
    if flag.choices is None:
        return str(_whole(option, value))
    word = _SWITCH[not value] if isinstance(value, bool) else value
    if word not in flag.choices:
        raise _invalid(option, value, ", ".join(flag.choices))
    return str(word)


def _settable(version: str) -> dict[str, BuildFlag]:
    return {flag.name: flag for flag in flags_of(version) if flag.option}


def _whole(name: str, value: _Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _invalid(name, value, "a whole number")
    return value


def _positive(name: str, value: _Value) -> int:
    if _whole(name, value) < 1:
        raise _invalid(name, value, "a whole number of at least 1")
    return int(value)


def _yes_or_no(name: str, value: _Value) -> bool:
    if not isinstance(value, bool):
        raise _invalid(name, value, "true, false")
    return value


def _word(name: str, value: _Value) -> str:
    if not isinstance(value, str) or not value or value.startswith("-") or not value.isprintable():
        raise _invalid(name, value, "a word that does not begin with a dash")
    return value


def _family(name: str, value: _Value) -> str:
    return family_called(_word(name, value)).name


def _dtype(name: str, value: _Value) -> str:
    if value not in ("float16", "bfloat16"):
        raise _invalid(name, value, "float16, bfloat16")
    return str(value)


def _digest(name: str, value: _Value) -> Digest:
    return Digest.parse(_word(name, value))


def _fields(name: str, value: _Value) -> frozenset[str]:
    parts = frozenset(part.strip() for part in _word(name, value).split(","))
    if not all(_FIELD.fullmatch(part) for part in parts):
        raise _invalid(name, value, "names of build_config fields with commas between them")
    return parts


def _invalid(name: str, value: _Value, want: str) -> InvalidInput:
    return InvalidInput(
        f"backend.options.{name} is {value!r}; it takes: {want}",
        hint=f"correct `{name}` in backend.options",
        reference="option-value-invalid",
    )


_OWN: dict[str, Callable[[str, _Value], Any]] = {
    "family": _family,
    "dtype": _dtype,
    "examples-dir": _word,
    "strip-plan": _yes_or_no,
    "fast-build": _yes_or_no,
    "timing-cache": _word,
    "timing-cache-digest": _digest,
    "group-size": _positive,
    "calibration-batch-size": _positive,
    "calibration-seed": _whole,
    "moe-expert-parallel": _positive,
    "allow-adjusted": _fields,
}
