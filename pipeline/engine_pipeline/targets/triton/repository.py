"""A complete Triton model repository for one engine, written from the serving image's templates.

    models/<model>/config.pbtxt
    models/<model>/<generation>/…      the only version there: the server loads exactly this one

The version is the deployment's generation, so what the server says it has loaded says which
deployment that is. Every config names engine and release, which the server tells back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.spec.model import EngineKind
from engine_pipeline.targets.durable import write_durably
from engine_pipeline.targets.triton.checkpoint_model import (
    CHECKPOINT_MODELS,
    CHECKPOINT_TEMPLATES,
    MODEL_YAML,
    model_yaml,
)
from engine_pipeline.targets.triton.engine_models import (
    ENGINE_MODELS,
    ENGINE_TEMPLATES,
    MANDATORY,
    engine_values,
    refuse_unknown,
)
from engine_pipeline.targets.triton.template import fill, refuse_without, with_parameters
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import Incompatible, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_pipeline.backends.port import EngineFacts
    from engine_registry.record import Release

CONFIG = "config.pbtxt"
ENGINE_KEY, RELEASE_KEY = "engine_ci_engine", "engine_ci_release"
_MODELS = {
    EngineKind.TRTLLM_ENGINE: (ENGINE_TEMPLATES, ENGINE_MODELS),
    EngineKind.TRTLLM_CHECKPOINT: (CHECKPOINT_TEMPLATES, CHECKPOINT_MODELS),
}
# The one version directory of each template.
_TEMPLATE_VERSION = "1"
_TOKENIZER = "tokenizer"


class Templates:
    """`all_models` of a serving image, read once.

    Args:
        root: the directory.
        kind: which engine it is for.

    Raises:
        Incompatible: reference `target-cannot-serve`.
        NotFound: reference `templates-missing`.
        InvalidInput: reference `template-foreign`.
    """

    def __init__(self, root: Path, kind: str) -> None:
        known = {found.value: found for found in _MODELS}
        if kind not in known:
            raise Incompatible(
                f"Triton cannot serve a {kind}; it serves {', '.join(known)}",
                hint="deploy it to a target of kind directory, and serve from there",
                reference="target-cannot-serve",
            )
        self.kind = known[kind]
        folder, self.models = _MODELS[self.kind]
        self._files: dict[str, bytes] = {}
        for model in self.models:
            place = root / folder / model
            if not (place / CONFIG).is_file():
                raise NotFound(
                    f"no template: {place / CONFIG} does not exist",
                    hint="copy /app/all_models out of the serving image, and name that directory "
                    "in the target's `templates`",
                    reference="templates-missing",
                )
            try:
                self._read(place, model)
            except OSError as error:
                raise NotFound(
                    f"template {place} cannot be read: {error.strerror}",
                    hint="give this user read access to the target's `templates`",
                    reference="templates-missing",
                ) from error
        for model, wanted in MANDATORY.items() if folder == ENGINE_TEMPLATES else ():
            refuse_without(self.config(model), wanted, f"{folder}/{model}/{CONFIG}")

    @property
    def digest(self) -> Digest:
        """Digest over names and bytes of every file."""
        return Digest.of(
            canonical_json({name: str(Digest.of(data)) for name, data in self._files.items()})
        )

    def config(self, model: str) -> str:
        """A model's config.pbtxt, with its placeholders."""
        return self._files[f"{model}/{CONFIG}"].decode()

    def files(self, model: str) -> dict[str, bytes]:
        """Files of a model's version directory, by their path in it."""
        prefix = f"{model}/{_TEMPLATE_VERSION}/"
        return {
            name.removeprefix(prefix): data
            for name, data in self._files.items()
            if name.startswith(prefix)
        }

    def _read(self, place: Path, model: str) -> None:
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place).as_posix()
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            data = path.read_bytes()
            if name == CONFIG:
                try:
                    data.decode()
                except UnicodeDecodeError as error:
                    raise InvalidInput(
                        f"{path}: not UTF-8",
                        hint="copy /app/all_models out of the serving image again",
                        reference="template-foreign",
                    ) from error
            self._files[f"{model}/{name}"] = data


def write_repository(
    templates: Templates,
    models_dir: Path,
    generation: int,
    *,
    release: Release,
    facts: EngineFacts,
    engine_dir: Path,
    seen_as: str,
    settings: Mapping[str, bool | int | float | str],
) -> None:
    """Write every model of the engine below `models_dir`, which is made.

    Args:
        templates: of the serving image.
        models_dir: in a version that nothing reads yet.
        generation: the version directory's name.
        release: named in every config.
        facts: of the engine.
        engine_dir: the engine, where this process sees it.
        seen_as: the engine, where the server sees it.
        settings: of the target.

    Raises:
        Incompatible: the engine does not say what is needed.
        InvalidInput: a setting or a template does not fit.
    """
    configs = {model: templates.config(model) for model in templates.models}
    extra: dict[str, bytes] = {}
    values: dict[str, str] = {}
    runtime_config = release.content.runtime_config
    if templates.kind is EngineKind.TRTLLM_CHECKPOINT:
        extra[MODEL_YAML] = model_yaml(
            facts, engine_dir=seen_as, runtime_config=runtime_config, settings=settings
        )
    else:
        refuse_unknown(settings, configs)
        own = (engine_dir / _TOKENIZER).is_dir()
        values = engine_values(
            facts,
            (engine_dir / "config.json").read_bytes(),
            engine_dir=seen_as,
            tokenizer_dir=f"{seen_as}/{_TOKENIZER}" if own else seen_as,
            runtime_config=runtime_config,
            settings=settings,
        )
    named = {ENGINE_KEY: str(release.content.engine), RELEASE_KEY: release.name}
    for model, template in configs.items():
        version_dir = models_dir / model / str(generation)
        version_dir.mkdir(parents=True)
        for name, data in {**templates.files(model), **extra}.items():
            path = version_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, data)
        text = with_parameters(fill(template, values, f"{model}/{CONFIG}"), named)
        write_durably(models_dir / model / CONFIG, text.encode())


def is_model(path: Path) -> bool:
    """Whether a repository would take it for a model: its configuration, or numbered versions."""
    if not path.is_dir():
        return False
    names = [entry.name for entry in path.iterdir()]
    return CONFIG in names or any(name.isdigit() for name in names)
