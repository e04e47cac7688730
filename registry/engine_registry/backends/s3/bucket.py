"""Requests to one bucket: the client, patience with a store that stumbles, errors translated.

The only module that imports boto3; it does so when the first request is made. Retrying is done
here and not by the client, so that conflicts (409) and bodies cut short are retried too, and tests
need not wait.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from engine_registry.backends.s3.failures import Answered, Kind, classify, user_error
from engine_registry.backends.s3.outgoing import BytesBody
from engine_registry.errors import EngineCIError, InvalidInput
from engine_registry.stopping import STOPPING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.backends.s3.address import S3Address

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

# One part or range each; more connections than parts and small requests together ever use.
_CONNECTIONS = 64
# Below, a body goes out with its headers in one go.
_PIECEWISE_FROM_BYTES = 1 << 20
# Attempts that may fail before a person hears of it: from here on it takes seconds.
_TOLD_AT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to put up with a store that fails.

    Attributes:
        attempts: how often a request is sent at most.
        pause_s: pause before the second attempt; doubles up to `longest_pause_s`, and a random
            half of it is left out so that racing writers part.
        deadline_s: no fourth attempt after this long: a store that is silent until each request
            times out is given up sooner than one that says no at once.
        read_s: how long the store may send nothing.
    """

    attempts: int = 8
    pause_s: float = 0.1
    longest_pause_s: float = 5.0
    deadline_s: float = 120.0
    connect_s: float = 5.0
    read_s: float = 30.0


class Bucket:
    """One bucket through one client. Safe to use from many threads.

    Args:
        address: which bucket, and how to reach it.
        patience: when to stop trying.
        sleep: waits between attempts.
        client: a boto3 client to share; making one takes a third of a second.
    """

    def __init__(
        self,
        address: S3Address,
        patience: Patience | None = None,
        sleep: Callable[[float], object] = STOPPING.wait,
        client: Any = None,
    ) -> None:
        self.address = address
        self._patience = patience or Patience()
        self._sleep = sleep
        self._lock = Lock()
        self._client = client
        self._told = False

    @property
    def client(self) -> Any:
        """The boto3 client, made when first asked for."""
        with self._lock:
            if self._client is None:
                self._client = self.attempt(
                    "connect", lambda: _client(self.address, self._patience)
                )
            return self._client

    def call(
        self, operation: str, what: str, answers: tuple[Kind, ...] = (), /, **parameters: Any
    ) -> dict[str, Any]:
        """The store's answer to one operation on this bucket.

        Args:
            operation: name of the client's method.
            what: the act, for messages: `read registry.json`.
            answers: failures that the caller treats itself.
            parameters: of the operation, without the bucket.

        Raises:
            Answered: one of `answers`.
            EngineCIError: anything else that went wrong, after patience ran out.
        """
        request = getattr(self.client, operation)
        body = parameters.get("Body", b"")

        def act() -> dict[str, Any]:
            if len(body) > _PIECEWISE_FROM_BYTES:
                parameters["Body"] = BytesBody(body)
            answer: dict[str, Any] = request(Bucket=self.address.bucket, **parameters)
            return answer

        return self.attempt(what, act, answers)

    def attempt(self, what: str, act: Callable[[], T], answers: tuple[Kind, ...] = ()) -> T:
        """`act` until it succeeds, fails for good, or patience runs out; raises as `call`."""
        started = time.monotonic()
        for number in range(1, self._patience.attempts + 1):
            try:
                return act()
            except EngineCIError:
                raise
            except Exception as error:
                failure = classify(error)
                if failure is None:
                    raise
                if failure.kind in answers:
                    raise Answered(failure) from error
                spent = number >= 3 and time.monotonic() - started > self._patience.deadline_s
                is_last = number == self._patience.attempts or STOPPING.is_set()
                if not failure.kind.retried or is_last or spent:
                    raise user_error(failure, self.address, what) from error
                if number == _TOLD_AT and not self._told:
                    self._told = True  # many threads may be at it: once is enough
                    _LOG.warning(
                        "%s: cannot %s: %s; trying again for a while",
                        self.address,
                        what,
                        failure.code,
                    )
            self._pause(number)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, number: int) -> None:
        longest = min(self._patience.pause_s * 2 ** (number - 1), self._patience.longest_pause_s)
        self._sleep(longest * (0.5 + random.random() / 2))


@cache
def _models() -> Any:
    """The description of the S3 service: 0.2 s to parse, the same for every registry."""
    from botocore.loaders import create_loader

    return create_loader()


def _client(address: S3Address, patience: Patience) -> Any:
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.session import get_session
    except ImportError as error:
        raise InvalidInput(
            f"{address}: boto3 is not installed, registries in a bucket need it",
            hint="run `pip install 'engine-ci[s3]'`",
            reference="extra-missing",
        ) from error
    core = get_session()
    core.register_component("data_loader", _models())
    session = Session(botocore_session=core)
    region = address.region or session.region_name
    config = Config(
        signature_version="s3v4",
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        retries={"total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        user_agent_extra="engine-ci",
        # Checksums are computed while the file is hashed, and sent as headers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": "path" if address.path_style else "auto",
            # Over TLS the checksum in a signed header guards the body; without, the signature does,
            # but for parts.
            "payload_signing_enabled": not (address.endpoint or "https:").startswith("https:"),
        },
    )
    client = session.client(
        "s3",
        endpoint_url=address.endpoint,
        # S3-compatible stores take any region; AWS redirects to the bucket's.
        region_name=region or "us-east-1",
        config=config,
    )
    # The parts of a large blob are many bytes to hash a second time. Their checksum is signed, and
    # the SHA-256 of the whole is in its name.
    unsigned = Config(s3={"payload_signing_enabled": False})

    def leave_unsigned(request: Any, **_: object) -> None:
        request.context["client_config"] = unsigned

    client.meta.events.register("before-sign.s3.UploadPart", leave_unsigned)
    return client
