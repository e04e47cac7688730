"""Which files of a source are taken, and which are refused. Pure.

Weights come as safetensors or GGUF. Pickle files run code when they are loaded, so they are never
taken, and a source that has nothing else is refused by name. Code files are taken only where the
spec opts in at a pinned commit: on a branch, whoever can push decides what the build runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from engine_pipeline.sources.port import Purpose
from engine_pipeline.spec.tokenizer import TOKENIZER_FILES
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMMIT = re.compile(r"[0-9a-f]{40}")
# Pickle itself, and the torch, joblib and dill files that are pickle inside.
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
CODE_SUFFIXES = (".py", ".pyc", ".so", ".sh")
WEIGHT_SUFFIXES = (".safetensors", ".gguf")
# Everything a converter, a builder or a server reads beside the weights.
CONFIG_FILES = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "params.json",
    *TOKENIZER_FILES,
)
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".txt", ".csv", ".arrow")
# Kept beside data sets and no part of them.
_DATA_NOTES = ("dataset_infos.json", "dataset_info.json", "readme.txt", "license.txt")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which files to take.

    Attributes:
        paths: sorted.
        notes: what was left out and why, one line each.
    """

    paths: tuple[str, ...]
    notes: tuple[str, ...]


def select_files(
    paths: Iterable[str],
    *,
    name: str,
    patterns: Sequence[str] = (),
    allow_code: bool = False,
    pinned: bool = False,
    purpose: Purpose = Purpose.MODEL,
) -> Selection:
    """Choose among all files of a source.

    Args:
        paths: every file, relative, with `/`.
        name: the source, for errors.
        patterns: globs over whole paths, where `*` crosses `/`; without any, the default.
        allow_code: the spec opts in to code files.
        pinned: the spec names an exact commit, not a branch or tag.
        purpose: what the files are for.

    Raises:
        InvalidInput: `pickle-weights-refused`, `code-refused`, `source-ambiguous`,
            `source-has-no-weights`, `source-path-unsafe`.
        NotFound: `source-pattern-unmatched`.
    """
    everything = sorted(set(paths))
    for path in everything:
        check_path(path, name)
    if patterns:
        taken = _matching(everything, patterns, name)
    elif purpose is Purpose.CALIBRATION:
        taken = [path for path in everything if _is_data(path)]
    else:
        taken = _default_model_files(everything, name)
    # Loaders run Python files that lie beside the weights, whether or not anybody named them.
    code = [p for p in taken if is_code(p)] if patterns else [p for p in everything if _runs(p)]
    if code:
        _check_code(code, name, allow_code=allow_code, pinned=pinned)
        taken = sorted({*taken, *code})
    pickles = [path for path in everything if is_pickle(path)]
    taken = [path for path in taken if not is_pickle(path)]
    useful = _is_data if purpose is Purpose.CALIBRATION else is_weights
    if not any(useful(path) for path in taken):
        raise _nothing_useful(name, pickles, everything, purpose)
    notes = [f"{_listed(pickles)}: left out, pickle"] if pickles else []
    return Selection(paths=tuple(taken), notes=tuple(notes))


def check_path(path: str, name: str) -> None:
    """Refuse a file name that could leave a directory or confuse a terminal or a command."""
    parts = path.split("/")
    safe = (
        path.isprintable()
        and "\\" not in path
        and not path.startswith(("/", "-"))
        and all(part not in {"", ".", ".."} for part in parts)
    )
    if not safe:
        raise InvalidInput(
            f"{name}: unsafe file name {path!r}",
            hint="take another source: a model has no use for such a name",
            reference="source-path-unsafe",
        )


def is_pickle(path: str) -> bool:
    """Whether loading this file could run code that is hidden in data."""
    return path.lower().endswith(PICKLE_SUFFIXES)


def is_code(path: str) -> bool:
    """Whether this file is a program."""
    return path.lower().endswith(CODE_SUFFIXES)


def is_weights(path: str) -> bool:
    """Whether this file holds weights in a format that is data only."""
    return path.lower().endswith(WEIGHT_SUFFIXES)


def _runs(path: str) -> bool:
    return "/" not in path and path.lower().endswith(".py")


def _is_data(path: str) -> bool:
    base = PurePosixPath(path).name.lower()
    return base.endswith(DATA_SUFFIXES) and base not in _DATA_NOTES


def _matching(everything: list[str], patterns: Sequence[str], name: str) -> list[str]:
    taken: set[str] = set()
    for pattern in patterns:
        found = [path for path in everything if fnmatchcase(path, pattern)]
        if not found:
            raise NotFound(
                f"{name}: no file matches {pattern!r} (there are: {_listed(everything)})",
                hint="correct model.files of the spec",
                reference="source-pattern-unmatched",
            )
        taken.update(found)
    return sorted(taken)


def _default_model_files(everything: list[str], name: str) -> list[str]:
    """Weights and configuration of the top directory; safetensors go before GGUF."""
    top = [path for path in everything if "/" not in path]
    tensors = [path for path in top if path.endswith(".safetensors")]
    # Some repositories hold the same weights a second time under this name.
    if any(not path.startswith("consolidated") for path in tensors):
        tensors = [path for path in tensors if not path.startswith("consolidated")]
    config = [path for path in top if path in CONFIG_FILES]
    if tensors:
        index = [path for path in top if path.endswith(".safetensors.index.json")]
        return sorted({*tensors, *index, *config})
    models: dict[str, list[str]] = {}
    for path in top:
        if path.lower().endswith(".gguf"):
            models.setdefault(_SPLIT.sub("", path), []).append(path)
    if len(models) > 1:
        raise InvalidInput(
            f"{name}: has {len(models)} GGUF models: {_listed(sorted(models))}",
            hint="name the one to take in model.files of the spec",
            reference="source-ambiguous",
        )
    return sorted({*(path for files in models.values() for path in files), *config})


def _check_code(code: list[str], name: str, *, allow_code: bool, pinned: bool) -> None:
    if not allow_code:
        raise InvalidInput(
            f"{name}: has code files: {_listed(code)}",
            hint="name the files to take in model.files, or read the code, pin its commit and set "
            "model.allow_code: true",
            reference="code-refused",
        )
    if not pinned:
        raise InvalidInput(
            f"{name}: code files ({_listed(code)}) at a revision that can move",
            hint="write the 40-digit commit whose code you have read as model.revision",
            reference="code-not-pinned",
        )


def _nothing_useful(
    name: str, pickles: list[str], everything: list[str], purpose: Purpose
) -> InvalidInput:
    if pickles:
        return InvalidInput(
            f"{name}: has only pickle files ({_listed(pickles)}), which run code when loaded",
            hint="take a revision or a copy of the model with safetensors or GGUF files",
            reference="pickle-weights-refused",
        )
    wanted = DATA_SUFFIXES if purpose is Purpose.CALIBRATION else WEIGHT_SUFFIXES
    return InvalidInput(
        f"{name}: no {' or '.join(wanted)} file to take (there are: {_listed(everything)})",
        hint="check source, revision and files of the spec",
        reference="source-has-no-weights" if purpose is Purpose.MODEL else "source-has-no-data",
    )


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return (", ".join(paths[:_SHOWN]) + more) if paths else "none"
