"""The mirror as a destination: brings MLflow up to what the registry holds, one fact at a time.

A fact only says where to look; what is written is what the registry says then. So the order of
deliveries does not matter, a repeated one changes nothing, and an alias never goes back to what an
old event said. Whatever a person deleted in MLflow stays deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.evidence import read_report
from engine_pipeline.tracking import facts
from engine_pipeline.tracking.facts import Kind
from engine_pipeline.tracking.http import NoReply, retry_after
from engine_pipeline.tracking.mlflow import names
from engine_pipeline.tracking.mlflow.content import link, of_build, of_report
from engine_pipeline.tracking.mlflow.reading import newest_record, record_of
from engine_pipeline.tracking.mlflow.server import Refused
from engine_pipeline.tracking.port import NotSent, Sent
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, NotFound, Unavailable
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from engine_pipeline.tracking.facts import Fact
    from engine_pipeline.tracking.mlflow.content import Content
    from engine_pipeline.tracking.mlflow.server import MlflowServer, Run
    from engine_registry.record import Record, Release
    from engine_registry.registry import Registry

_GATES = {Kind.GATE_PASSED, Kind.GATE_FAILED, Kind.GATE_UNDECIDED}
_MIRRORED = {Kind.BUILD_FINISHED, Kind.RELEASED, Kind.PROMOTED, Kind.ROLLED_BACK, *_GATES}
# Statuses that say nothing about what was sent.
_TRANSIENT = {408, 425, 429}
_NOT_ALLOWED = {401, 403}


class _Taken(Exception):
    """A name in MLflow belongs to somebody else, or its owner deleted it."""


class MlflowMirror:
    """One registry in one MLflow server.

    Args:
        registry: what is mirrored; only read.
        server: where to.
        prefix: of the names of experiments and models, for several registries in one server.
        registry_id: tells this registry from others.
    """

    name = "mlflow"

    def __init__(
        self, registry: Registry, server: MlflowServer, *, prefix: str, registry_id: str
    ) -> None:
        self._registry = registry
        self._server = server
        self._prefix = prefix
        self._registry_id = registry_id
        self._experiments: dict[ProductRef, str] = {}

    @property
    def max_age(self) -> timedelta | None:
        """The whole history is mirrored, however late."""
        return None

    def wants(self, fact: Fact) -> bool:
        """Builds, reports, releases, and what moves a channel."""
        return fact.kind in _MIRRORED

    def deliver(self, fact: Fact, *, delivery: str, attempt: int) -> Sent | NotSent:  # noqa: ARG002
        """Bring MLflow up to this fact."""
        try:
            return Sent(detail=self._mirror(fact))
        except NoReply as error:
            return NotSent(detail=str(error))
        except Refused as error:
            self._experiments.clear()
            is_transient = error.status >= 500 or error.status in _TRANSIENT
            return NotSent(
                detail=f"{self._server.place}: {error}",
                retry_after=retry_after(error.retry_after, datetime.now(UTC)),
                is_final=not is_transient,
                is_about_this=not is_transient and error.status not in _NOT_ALLOWED,
            )
        except _Taken as error:
            detail = f"{self._server.place}: {error}"
            return NotSent(detail=detail, is_final=True, is_about_this=True)
        except Unavailable as error:
            return NotSent(detail=error.message)
        except NotFound as error:
            return Sent(detail=f"left out: {error.message}")
        except EngineCIError as error:
            return NotSent(detail=error.message, is_final=True, is_about_this=True)

    def _mirror(self, fact: Fact) -> str:
        if fact.kind is Kind.BUILD_FINISHED and fact.engine is not None:
            record = record_of(self._registry, fact.engine, fact.details["build_key"])
            return _said(self._build_run(record))
        if fact.kind in _GATES and fact.engine is not None:
            report = Digest.parse(fact.details["report"])
            return _said(self._gate_run(fact.engine, report))
        if fact.kind is Kind.RELEASED and fact.release is not None:
            release = self._registry.releases.release(ReleaseRef.parse(fact.release))
            return f"version {self._version(release)}"
        return self._alias(ChannelRef.parse(fact.channel or ""))

    def _id(self, fact_id: str) -> str:
        return f"{self._registry_id}/{fact_id}"

    def _build_run(self, record: Record) -> Run:
        return self._run(
            ProductRef(record.model, record.target),
            facts.build_id(record.engine, record.build_key),
            f"build {record.precision} {record.engine.short}",
            started=names.build_started(record),
            ended=record.built_at,
            content=lambda: of_build(self._registry, record),
        )

    def _gate_run(self, engine: Digest, attached: Digest) -> Run:
        report = read_report(self._registry, engine, attached)
        record = newest_record(self._registry, engine)
        product = ProductRef(record.model, record.target)

        def content() -> Content:
            build = self._build_run(record)
            links = link(record, self._experiment(product), build.run_id)
            return of_report(
                self._registry, report, attached, record, product, {} if build.is_deleted else links
            )

        return self._run(
            product,
            facts.report_id(engine, attached),
            f"gate {report.gate} {report.outcome} {engine.short}",
            started=report.started_at,
            ended=report.finished_at,
            content=content,
            # MLflow's FAILED is a run that broke; an engine that was judged bad is a good run.
            status="FAILED" if report.outcome is Outcome.ERRORED else "FINISHED",
        )

    def _run(
        self,
        product: ProductRef,
        fact_id: str,
        name: str,
        *,
        started: datetime,
        ended: datetime,
        content: Callable[[], Content],
        status: str = "FINISHED",
    ) -> Run:
        """The run of a fact, whole; its end is written last and says that nothing is missing."""
        experiment = self._experiment(product)
        run = self._server.find_run(experiment, names.ID, self._id(fact_id))
        if run is not None and (run.is_finished or run.is_deleted):
            return run
        made = content()
        if run is None:
            own = {
                names.ID: self._id(fact_id),
                names.PRODUCT: str(product),
                names.REGISTRY: self._registry_id,
            }
            run = self._server.create_run(
                experiment, name, names.milliseconds(started), {**own, **made.tags}
            )
        self._server.log(run, made.params, made.metrics, names.milliseconds(ended))
        for path, data in made.artifacts.items():
            self._server.put_artifact(run, path, data)
        self._server.finish(run, status, names.milliseconds(ended))
        return run

    def _experiment(self, product: ProductRef) -> str:
        if product not in self._experiments:
            name = names.experiment_name(self._prefix, product)
            experiment, is_deleted = self._server.experiment(name, {names.PRODUCT: str(product)})
            if is_deleted:
                msg = f"experiment {name} was deleted there; restore it, or use another --prefix"
                raise _Taken(msg)
            self._experiments[product] = experiment
        return self._experiments[product]

    def _version(self, release: Release) -> str:
        product = ProductRef(release.model, release.target)
        model = self._model(product)
        fact_id = self._id(facts.release_id(release.name))
        version = self._server.find_version(model, names.ID, fact_id)
        if version is not None:
            return version
        content = release.content
        record = next(
            (
                r
                for r in self._registry.engines.records(content.engine)
                if r.digest == content.record
            ),
            None,
        )
        run = None if record is None else self._build_run(record)
        tags = {
            names.ID: fact_id,
            "engine_ci.release": release.name,
            "engine_ci.engine": str(content.engine),
            "engine_ci.precision": content.precision,
            "engine_ci.serving_image": names.tag_text(content.serving_image),
            "engine_ci.tokenizer": str(content.tokenizer),
            "engine_ci.actor": release.created_by.name,
        }
        return self._server.create_version(
            model,
            source=f"engine-ci:/{product}@{content.engine}",
            run=None if run is None or run.is_deleted else run,
            description=f"Release {release.number}: engine {content.engine.short}",
            tags=tags,
        )

    def _model(self, product: ProductRef) -> str:
        name = names.model_name(self._prefix, product)
        own = {names.PRODUCT: str(product), names.REGISTRY: self._registry_id}
        tags = self._server.model(
            name, f"Releases of {product}. Mirrored: what is decided is in the registry.", own
        )
        if {key: tags.get(key) for key in own} != own:
            whose = tags.get(names.PRODUCT, "somebody else")
            msg = f"model {name} belongs to {whose}, not to {product} here; use another --prefix"
            raise _Taken(msg)
        return name

    def _alias(self, ref: ChannelRef) -> str:
        state = self._registry.channels.state(ref)
        if state.live is None:
            return "nothing live"
        release = self._registry.releases.release(ReleaseRef(ref.product, state.live.number))
        version = self._version(release)
        model = self._model(ref.product)
        alias = names.alias_name(ref.channel)
        if self._server.aliases(model).get(alias) != version:
            self._server.set_alias(model, alias, version)
        entry = state.history[0]
        self._server.set_model_tag(
            model,
            f"engine_ci.channel.{ref.channel}",
            f"{release.name} since {entry.since:%Y-%m-%d %H:%M:%S}Z, event {entry.event}",
        )
        return f"{alias} is version {version}"


def _said(run: Run) -> str:
    return f"run {run.run_id}" + (", deleted there: left alone" if run.is_deleted else "")
