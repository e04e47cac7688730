"""What is compared, under which load, and what counts: a bake-off's file as a value. Pure.

The file names no key, only the environment variable that holds one, and what it says of price,
limits and priorities decides nothing that is measured: change it, and the stored measurements are
judged anew.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from engine_pipeline.bakeoff.goals import Goal, LaneGoal, Limits, Priority
from engine_pipeline.gates import json_answer
from engine_pipeline.gates.embedding_model import EmbeddingModel
from engine_pipeline.gates.judge_model import JudgeModel
from engine_pipeline.gates.lane_bars import Lanes
from engine_pipeline.gates.load import Concurrency, Load
from engine_pipeline.gates.suite import Message
from engine_pipeline.redact import TOKEN
from engine_registry.documents import Document, Value
from engine_registry.refs import Slug

REFERENCE = "bakeoff-invalid"
MOST_CONTESTANTS = 16
_MOST_URL_CHARS = 400
Words = Annotated[str, Field(min_length=1, max_length=200)]
Money = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Requests = Annotated[int, Field(ge=1, le=100_000)]
# Upper case, as environments have it: most keys that are pasted here by mistake do not fit.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


class HostedPlace(Value):
    """An endpoint that somebody else runs: asked as it is, never started, never stopped.

    Attributes:
        url: scheme, host and port, and what comes before `/v1`; no user name and no query.
        model: a name that its `/v1/models` lists.
        api_key_env: name of the environment variable that holds the key; never the key itself.
    """

    url: str
    model: Words
    api_key_env: str | None = None

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            bad = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
        except ValueError:
            bad = True
        # What does not fit may hold a password or a key, so it is not repeated.
        if bad or not url.isprintable() or " " in url or len(url) > _MOST_URL_CHARS:
            msg = "not an address (not shown): want http:// or https:// and a host"
            raise ValueError(msg)
        if parts.username is not None or parts.query or parts.fragment or TOKEN.search(url):
            msg = "holds a user name, a query or a key (not shown): put the key into a variable"
            raise ValueError(msg)
        return url

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, name: str | None) -> str | None:
        if name is not None and (not _VARIABLE.fullmatch(name) or TOKEN.search(name)):
            msg = "not the name of a variable (not shown): want A-Z, 0-9 and _, as OPENAI_API_KEY"
            raise ValueError(msg)
        return name


class Price(Value):
    """What a contestant costs, as you pay it: per hour, or per million tokens.

    Attributes:
        per_hour: for everything that serves it, kept busy as in the load.
        per_million_output_tokens: as the endpoint's owner charges.
        per_million_input_tokens: the same for prompts; counted at the load's own lengths.
    """

    per_hour: Money | None = None
    per_million_output_tokens: Money | None = None
    per_million_input_tokens: Money | None = None

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if (self.per_hour is None) == (self.per_million_output_tokens is None):
            msg = "want either per_hour or per_million_output_tokens"
            raise ValueError(msg)
        if self.per_hour is not None and self.per_million_input_tokens is not None:
            msg = "per_million_input_tokens goes with per_million_output_tokens, not with per_hour"
            raise ValueError(msg)
        if self.per_million_output_tokens == 0 and self.per_million_input_tokens:
            msg = "charges prompts and not answers: there is no price of an answer to compare"
            raise ValueError(msg)
        return self

    @property
    def amount(self) -> float:
        """The number that is stated: for an hour, or for a million output tokens."""
        return self.per_hour if self.per_hour is not None else self.per_million_output_tokens or 0.0

    @property
    def unit(self) -> str:
        """What `amount` is for."""
        return "an hour" if self.per_hour is not None else "a million output tokens"

    @property
    def input_share(self) -> float:
        """The price of a prompt's token over that of an answer's."""
        return (self.per_million_input_tokens or 0.0) / (self.amount or 1.0)


class Contestant(Value):
    """Somebody to be judged: an engine of the registry, or an endpoint.

    Attributes:
        engine: digest, release or channel; served on this machine.
        endpoint: asked where it is.
        model_revision: which weights answer; of an engine the registry knows, and must agree.
        chat_template: its digest, or words; of an engine the registry knows, and must agree.
        price: what it costs.
    """

    name: Slug
    engine: Words | None = None
    endpoint: HostedPlace | None = None
    model_revision: Words | None = None
    chat_template: Words | None = None
    price: Price | None = None

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if (self.engine is None) == (self.endpoint is None):
            msg = f"contestant {self.name}: want either engine or endpoint"
            raise ValueError(msg)
        if self.endpoint and (self.model_revision is None or self.chat_template is None):
            msg = (
                f"contestant {self.name}: state model_revision and chat_template; "
                "of an endpoint nobody else can"
            )
            raise ValueError(msg)
        return self


class SpeedLoad(Value):
    """The load that speed is measured under, the same for everybody.

    Attributes:
        requests: measured at each step; 59 and more give p95 an upper bound.
        concurrency: one step for each: how many requests are in flight, all the time.
        output_tokens: of each answer.
        prompt_words: of each prompt; no two are equal.
        warmup_requests: sent first at each step, and not measured.
    """

    requests: Requests
    concurrency: Annotated[tuple[Concurrency, ...], Field(min_length=1, max_length=12)]
    output_tokens: Annotated[int, Field(ge=2, le=8192)]
    prompt_words: Annotated[int, Field(ge=8, le=8192)] = 48
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 2

    @model_validator(mode="after")
    def _steps_up(self) -> Self:
        if list(self.concurrency) != sorted(set(self.concurrency)):
            msg = f"concurrency {list(self.concurrency)}: want steps that rise"
            raise ValueError(msg)
        if self.requests < self.concurrency[-1]:
            msg = f"requests {self.requests} cannot keep {self.concurrency[-1]} in flight"
            raise ValueError(msg)
        return self

    def step(self, concurrency: int) -> Load:
        """The load of one step."""
        return Load(
            requests=self.requests,
            concurrency=concurrency,
            output_tokens=self.output_tokens,
            prompt_words=self.prompt_words,
            warmup_requests=self.warmup_requests,
        )


class StructuredLoad(Value):
    """Requests that ask for JSON under a schema (`response_format: json_schema`), their own row.

    Attributes:
        ask: the request, in words; a number and a topic are put before it, so no two are equal.
        json_schema: written `schema`: JSON Schema (draft 2020-12) of the answers.
        output_tokens: an answer that is not finished by then does not count as valid.
    """

    requests: Requests
    concurrency: Concurrency = 1
    output_tokens: Annotated[int, Field(ge=2, le=8192)]
    ask: Annotated[str, Field(min_length=1, max_length=4000)]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any]) -> dict[str, Any]:
        json_answer.check_schema(value)
        return value

    @model_validator(mode="after")
    def _keeps_it_busy(self) -> Self:
        if self.requests < self.concurrency:
            msg = f"requests {self.requests} cannot keep {self.concurrency} in flight"
            raise ValueError(msg)
        return self

    def prompt(self, index: int) -> tuple[Message, ...]:
        """The chat of request `index`."""
        from engine_pipeline.gates.prompts import prompt

        topic = prompt(index, 8)[0].content.removesuffix(".").partition(" with ")[2]
        return (Message(role="user", content=f"{index + 1}. About {topic}: {self.ask}"),)


class BakeoffFile(Document):
    """A bake-off: who, on what, under which load, and what counts.

    Attributes:
        contestants: at least two.
        suites: names of directories of golden_prompts/.
        load: so many requests in flight all along: what throughput and cost are taken from.
        lanes: further loads, such as users make, each with bars that are limits too; written as the
            `lanes` of a gate are.
        judge: who decides the checks of kind `judge`; suites with such checks need one.
        embeddings: what tells how near texts are, for checks of kind `similar`; the same.
        currency: what prices are in, for people.
        optimise: what to make as good as possible among those that meet the limits, first things
            first; what is not named does not count.
        timeout_s: longest wait for one answer.
        load_timeout_s: longest wait for an engine to load.
    """

    schema_version: Literal[1]
    name: Slug
    contestants: Annotated[tuple[Contestant, ...], Field(min_length=2, max_length=MOST_CONTESTANTS)]
    suites: Annotated[tuple[Slug, ...], Field(min_length=1, max_length=16)]
    load: SpeedLoad
    lanes: Lanes | None = None
    judge: JudgeModel | None = None
    embeddings: EmbeddingModel | None = None
    structured: StructuredLoad | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    limits: Limits = Limits()
    optimise: Annotated[tuple[Goal, ...], Field(min_length=1, max_length=8)]
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    load_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0

    @model_validator(mode="after")
    def _says_each_thing_once(self) -> Self:
        for what, names in (
            ("contestants", [one.name for one in self.contestants]),
            ("suites", list(self.suites)),
            ("optimise", [str(one) for one in self.optimise]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                msg = f"{what}: {twice[0]} is given twice"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        unpriced = [one.name for one in self.contestants if one.price is None]
        if Priority.COST in self.optimise and unpriced:
            msg = f"optimise names cost: give {', '.join(unpriced)} a price"
            raise ValueError(msg)
        if self.limits.min_structured_share is not None and self.structured is None:
            msg = "limits.min_structured_share needs `structured`: the requests it is about"
            raise ValueError(msg)
        for goal in self.optimise:
            if isinstance(goal, LaneGoal):
                self._check_lane(goal)
        return self

    def _check_lane(self, goal: LaneGoal) -> None:
        bars = (self.lanes or {}).get(goal.lane)
        if bars is None:
            known = ", ".join(self.lanes or {}) or "none"
            msg = f"optimise names the lane {goal.lane}; lanes: {known}"
            raise ValueError(msg)
        if goal.metric.startswith("good") and bars.slo is None:
            msg = f"optimise names {goal.metric} of {goal.lane}, which has no slo to be good by"
            raise ValueError(msg)
