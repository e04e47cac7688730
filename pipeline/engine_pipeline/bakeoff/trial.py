"""What every contestant is put through, the same for each: suites, loads, who else judges."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.advising import Advice
from engine_pipeline.gates.policy import compared_cases, judged_cases
from engine_pipeline.gates.python_check import resolve_checks
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.workload.model import Workload

_ASKED = ("load", "structured", "timeout_s", "judge", "embeddings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Everything that is asked.

    Attributes:
        workloads: of every lane, by its name.
        advice: who else is asked about answers.
    """

    file: BakeoffFile
    suites: tuple[Suite, ...]
    workloads: Mapping[str, Workload]
    advice: Advice

    def asked(self) -> dict[str, Any]:
        """All of it that a measurement depends on, as plain values.

        Prices, limits, priorities and the bars of lanes are not among them.
        """
        file, today = self.file, self.advice.today
        return {
            **file.model_dump(mode="json", include={*_ASKED}, by_alias=True),
            "suites": [str(suite.digest) for suite in self.suites],
            "lanes": {name: str(self.workloads[name].digest) for name in file.lanes or {}},
            "code": {point: str(code.code) for point, code in sorted(self.advice.code.items())},
            # A case that comes out of quarantine counts again.
            "left_out": [
                f"{suite.name}/{case.id}"
                for suite in self.suites
                for case in suite.cases
                if not case.counts_on(today)
            ],
        }


def trial_of(
    file: BakeoffFile,
    suites: Sequence[Suite],
    *,
    today: date,
    workloads: Mapping[str, Workload] = MappingProxyType({}),
    judge: Endpoint | None = None,
    embeddings: EmbeddingPlace | None = None,
) -> Trial:
    """The trial that a file asks for.

    Args:
        file: what is asked.
        suites: those that it names.
        today: of which quarantines are over.
        workloads: of the lanes whose workload is in a file, by lane.
        judge: where the file's judge is.
        embeddings: where the file's embedding model is.

    Raises:
        InvalidInput: a suite leaves cases to a judge or to an embedding model and the file names
            none, or what stands for a `python` check is not what was meant.
        NotFound: a `python` check is not installed.
    """
    for suite in suites:
        for who, cases, named in (
            ("judge", judged_cases(suite), file.judge),
            ("embeddings", compared_cases(suite), file.embeddings),
        ):
            if cases and named is None:
                raise InvalidInput(
                    f"suite {suite.name} needs `{who}` for {', '.join(cases[:5])}, the file names "
                    "none",
                    hint=f"add `{who}: {{endpoint: URL, model: NAME}}` to the file",
                    reference=f"bakeoff-without-{who}",
                )
    if not any(case.counts_on(today) for suite in suites for case in suite.cases):
        raise InvalidInput(
            f"every case of {', '.join(suite.name for suite in suites)} is in quarantine",
            hint="name a suite with a case that counts: without any there is no quality to compare",
            reference="bakeoff-all-in-quarantine",
        )
    code = {point: one for suite in suites for point, one in resolve_checks(suite).items()}
    lanes = (file.lanes or {}).items()
    return Trial(
        file=file,
        suites=tuple(suites),
        workloads={name: bars.workload or workloads[name] for name, bars in lanes},
        advice=Advice(today=today, judge=judge, embeddings=embeddings, code=code),
    )
