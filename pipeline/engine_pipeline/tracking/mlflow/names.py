"""What things of a registry are called in MLflow, and the values that are shown of them. Pure."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine_registry.errors import InvalidInput
from engine_registry.refs import SLUG_PATTERN

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.gates.report import Report
    from engine_pipeline.spec.lock import BuildLock
    from engine_registry.record import Record
    from engine_registry.refs import ProductRef

ID = "engine_ci.id"
PRODUCT = "engine_ci.product"
REGISTRY = "engine_ci.registry"
# MLflow keeps these alias names for itself.
_RESERVED = re.compile(r"latest|v[0-9]+", re.IGNORECASE)
# `mlflow.utils.validation` of 3.17.2: 6,000 characters for parameters, 8,000 for tags.
_MAX_PARAM_CHARS = 6000
_MAX_TAG_CHARS = 5000
_PREFIX = re.compile(SLUG_PATTERN)
_BAD_KEY = re.compile(r"[^A-Za-z0-9_./ -]")


def check_prefix(prefix: str) -> None:
    """Refuse what MLflow would not take in a name (`mlflow-prefix`)."""
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidInput(
            f"--prefix {prefix[:80]!r}: not a lower-case slug",
            hint="use letters, digits, `-`, `_` and dots, e.g. --prefix site-b",
            reference="mlflow-prefix",
        )


def experiment_name(prefix: str, product: ProductRef) -> str:
    """`engine-ci/MODEL/TARGET`, or with another prefix."""
    return f"{prefix or 'engine-ci'}/{product.model}/{product.target}"


def model_name(prefix: str, product: ProductRef) -> str:
    """`MODEL--TARGET`; MLflow allows no `/` and no `:` in the name of a registered model."""
    return "--".join([*([prefix] if prefix else []), product.model, product.target])


def alias_name(channel: str) -> str:
    """The channel's name, as far as MLflow allows it: no dot, and not `latest` or `v1`."""
    name = channel.replace(".", "-dot-")
    return f"channel-{name}" if _RESERVED.fullmatch(name) else name


def milliseconds(moment: datetime) -> int:
    """Since the epoch, as MLflow counts."""
    return int(moment.timestamp() * 1000)


def key(name: str) -> str:
    """`name` as MLflow takes it for a parameter, a tag or a metric."""
    return _BAD_KEY.sub("_", name)[:250]


def clean(values: dict[str, Any]) -> dict[str, str]:
    """Parameters or tags as texts of a length that MLflow takes; None is left out."""
    return {
        key(name): str(value)[:_MAX_PARAM_CHARS]
        for name, value in values.items()
        if value is not None and str(value)
    }


def finite(values: dict[str, float | None]) -> dict[str, float]:
    """Metrics that have a value."""
    return {
        key(name): float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def build_started(record: Record) -> datetime:
    """When the build began, from when it ended and how long it took."""
    return record.built_at - timedelta(seconds=record.build_wall_s or 0)


def build_params(record: Record, lock: BuildLock | None) -> dict[str, str]:
    """What the engine was made from; without a readable lock, what the record says."""
    platform = record.platform
    values: dict[str, Any] = {
        "spec": record.spec,
        "kind": record.kind,
        "precision": record.precision,
        "build_key": record.build_key,
        "sku": platform.sku,
        "sm": platform.sm,
        "driver": platform.driver,
        "cuda": platform.cuda,
        "tensorrt": platform.tensorrt,
        "tensor_parallel": platform.parallelism.tensor,
        "pipeline_parallel": platform.parallelism.pipeline,
        **{f"runtime.{name}": version for name, version in platform.runtime.items()},
    }
    if lock is not None:
        spec = lock.spec
        values |= {
            "source": lock.source.source,
            "revision": lock.source.revision,
            "kv_cache": spec.precision.kv_cache,
            "recipe": spec.precision.recipe,
            "backend_version": spec.backend.version,
            "image": lock.image.digest if lock.image else None,
            **{f"limits.{k}": v for k, v in spec.limits.model_dump(mode="json").items()},
            **{f"backend.{k}": v for k, v in spec.backend.options.items()},
        }
    return clean(values)


def build_metrics(record: Record) -> dict[str, float]:
    """What the build cost and gave."""
    return finite(
        {
            "build_wall_s": record.build_wall_s,
            "build_peak_rss_bytes": record.build_peak_rss_bytes,
            "size_bytes": record.size_bytes,
        }
    )


def _device(report: Report) -> dict[str, object]:
    device = report.device
    if device is None:
        return {}
    return {
        "device.sku": device.sku,
        "device.cpu_model": device.cpu_model,
        "device.cores": device.cores,
        **({} if device.driver is None else {"device.driver": device.driver}),
    }


def gate_params(report: Report) -> dict[str, str]:
    """Under what the engine was judged."""
    return clean(
        {
            "gate": report.gate,
            "suite": report.suite_name,
            "suite_digest": report.suite,
            "policy_digest": report.policy_digest,
            "device.host_class": report.host,
            **_device(report),
        }
    )


def tag_text(text: str) -> str:
    """A text of a length that every tag of MLflow takes."""
    return text[:_MAX_TAG_CHARS]
