"""What the answers and failures of an S3 store mean, and the errors a user sees for them.

No message repeats what the store said about a request's authentication, nor a header: only the
operation, the address, the code and the request's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from engine_registry.cause import cause_of
from engine_registry.errors import EngineCIError, Incompatible, NotFound, Unavailable

if TYPE_CHECKING:
    from engine_registry.backends.s3.address import S3Address


class Kind(Enum):
    """How the caller has to treat a failed request."""

    TRANSIENT = auto()  # send it again; it may have taken effect
    BUSY = auto()  # a conflicting request is running: 409; send it again
    DAMAGED = auto()  # the store received other bytes than were sent; send it again
    ABSENT = auto()  # no such object
    NO_UPLOAD = auto()  # no such multipart upload: completed, aborted or swept
    UNMET = auto()  # If-Match or If-None-Match said no
    BAD_PARTS = auto()  # a multipart upload cannot be completed from these parts
    NO_BUCKET = auto()
    DENIED = auto()
    NO_CREDENTIALS = auto()
    UNKNOWN_TO_STORE = auto()  # the store lacks an operation or an option
    FULL = auto()
    OTHER = auto()

    @property
    def retried(self) -> bool:
        """Whether the same request may succeed if sent again soon."""
        return self in {Kind.TRANSIENT, Kind.BUSY, Kind.DAMAGED}


_BY_CODE = {
    "NoSuchKey": Kind.ABSENT,
    "NoSuchUpload": Kind.NO_UPLOAD,
    "NoSuchBucket": Kind.NO_BUCKET,
    "PreconditionFailed": Kind.UNMET,
    "ConditionalRequestConflict": Kind.BUSY,
    "OperationAborted": Kind.BUSY,
    "BadDigest": Kind.DAMAGED,
    "XAmzContentSHA256Mismatch": Kind.DAMAGED,
    "XAmzContentChecksumMismatch": Kind.DAMAGED,
    "IncompleteBody": Kind.TRANSIENT,
    "RequestTimeout": Kind.TRANSIENT,
    "SlowDown": Kind.TRANSIENT,
    "InvalidPart": Kind.BAD_PARTS,
    "InvalidPartOrder": Kind.BAD_PARTS,
    "EntityTooSmall": Kind.BAD_PARTS,
    "NotImplemented": Kind.UNKNOWN_TO_STORE,
    "QuotaExceeded": Kind.FULL,
    "InsufficientStorage": Kind.FULL,
    "XMinioStorageFull": Kind.FULL,
    "ExpiredToken": Kind.DENIED,
    "InvalidToken": Kind.DENIED,
}
_BY_STATUS = {
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.ABSENT,
    408: Kind.TRANSIENT,
    409: Kind.BUSY,
    412: Kind.UNMET,
    429: Kind.TRANSIENT,
    501: Kind.UNKNOWN_TO_STORE,
    507: Kind.FULL,
}
_ACCESS_HINTS = {
    "ExpiredToken": "renew the credentials (`aws sso login`, or the job's role), then run it again",
    "RequestTimeTooSkewed": "set this machine's clock, then run the same command again",
    "InvalidAccessKeyId": "the store knows no such access key: check AWS_PROFILE",
    "SignatureDoesNotMatch": "the secret key or the region does not fit: check AWS_PROFILE and "
    "region= in the address",
}
_ACCESS_HINT = "ask for the permissions listed in docs/stores.md on this bucket and prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed request.

    Attributes:
        code: the store's error code, or the name of the client library's exception.
        text: what the store said, where that cannot hold a secret.
    """

    kind: Kind
    code: str
    status: int | None = None
    request_id: str = ""
    text: str = ""


class Answered(Exception):
    """The store's answer was one of those that the caller treats itself."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code)
        self.kind = failure.kind


class Truncated(Exception):
    """Fewer bytes arrived than the store announced."""


def classify(error: Exception) -> Failure | None:
    """What a failure of the client library means; None for a bug that must not be hidden."""
    from botocore import exceptions as known
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    name = type(error).__name__
    match error:
        case known.ClientError():
            return _answer(error.response)
        case (
            known.NoCredentialsError()
            | known.PartialCredentialsError()
            | known.CredentialRetrievalError()
            | known.TokenRetrievalError()
            | known.UnauthorizedSSOTokenError()
            | known.SSOTokenLoadError()
            | known.ProfileNotFound()
        ):
            return Failure(kind=Kind.NO_CREDENTIALS, code=name)
        case known.SSLError():
            return Failure(kind=Kind.OTHER, code=name, text="TLS failed: certificate not trusted?")
        case known.InvalidRegionError() | known.NoRegionError():
            return Failure(kind=Kind.OTHER, code=name, text="no usable region=")
        case (
            known.HTTPClientError()
            | known.ConnectionError()
            | known.IncompleteReadError()
            | ResponseParserError()
            | HTTPError()
            | Truncated()
            | OSError()
        ):
            return Failure(kind=Kind.TRANSIENT, code=cause_of(error))
        case known.BotoCoreError():
            return Failure(kind=Kind.OTHER, code=name)
        case _:
            return None


def _answer(response: dict[str, Any]) -> Failure:
    said = response.get("Error", {})
    meta = response.get("ResponseMetadata", {})
    code = str(said.get("Code", "")) or "no code"
    status = meta.get("HTTPStatusCode")
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or Kind.OTHER
    if kind is Kind.OTHER and status is not None and status >= 500:
        kind = Kind.TRANSIENT
    text = "" if kind is Kind.DENIED else str(said.get("Message", ""))[:200]
    return Failure(
        kind=kind, code=code, status=status, request_id=str(meta.get("RequestId", "")), text=text
    )


def user_error(failure: Failure, address: S3Address, what: str) -> EngineCIError:
    """The error for a request that failed for good."""
    answer = failure.code if failure.status is None else f"{failure.status} {failure.code}"
    trace = f" (request {failure.request_id})" if failure.request_id else ""
    said = f": {failure.text}" if failure.text else ""
    line = f"{address}: cannot {what}: {answer}{said}{trace}"
    match failure.kind:
        case Kind.NO_BUCKET:
            return NotFound(
                f"{address}: cannot {what}: there is no bucket {address.bucket!r}",
                hint=f"create it (`aws s3 mb s3://{address.bucket}`) or correct the address",
                reference="bucket-missing",
            )
        case Kind.DENIED:
            return Unavailable(
                line,
                hint=_ACCESS_HINTS.get(failure.code, _ACCESS_HINT),
                reference="store-access-denied",
            )
        case Kind.NO_CREDENTIALS:
            return Unavailable(
                f"{address}: cannot {what}: no usable AWS credentials ({failure.code})",
                hint="set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role",
                reference="store-credentials-missing",
            )
        case Kind.UNKNOWN_TO_STORE:
            return Incompatible(
                line,
                hint="try checksum=md5 in the address; docs/stores.md lists what a store must do",
                reference="store-lacks-operation",
            )
        case Kind.FULL:
            return Unavailable(
                line,
                hint="make room in the store or raise the quota, then run the same command again",
                reference="store-full",
            )
        case Kind.DAMAGED:
            return Unavailable(
                line,
                hint="bytes are damaged between here and the store: try another network path or "
                "machine, then run the same command again",
                reference="store-transfer-damaged",
            )
        case Kind.TRANSIENT | Kind.BUSY:
            return Unavailable(
                line,
                hint="check that the store is up and reachable, then run the same command again",
                reference="store-unreachable",
            )
        case _:
            return Unavailable(
                line,
                hint="look the code up in the store's manual; docs/stores.md lists what it must do",
                reference="store-error",
            )
