"""A waiting authorization request travels in the address, signed and with its time.

Nothing is stored for a visitor who may never sign in; restarts, tabs and nodes cost nothing.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from itsdangerous import BadData, TimestampSigner, URLSafeTimedSerializer

from sso import clock, current

MAX_AGE = 24 * 3600  # seconds: a sign-in page left open overnight still leads on
MAX_LENGTH = 7000  # an address line may have 8190 bytes (contract §6)
_TURNED_AWAY = "turned away"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TooLong(ValueError):
    """The request does not fit into an address."""


@dataclass(frozen=True)
class SealedRequest:
    """The parameters as they came, when they came, and what our steps have found out since."""

    parameters: dict[str, str]
    asked_at: datetime | None = None  # None: it comes in just now
    selected: str | None = None
    denied: bool = False  # by the user, on the consent page
    turned_away: bool = False  # comes back from the page about a missing group


def seal(waiting: SealedRequest) -> str:
    """Sign a request. Raises `TooLong`."""
    micros = ((waiting.asked_at or clock.now()) - _EPOCH) // timedelta(microseconds=1)
    # One place for both, because an older version of the program reads four.
    refusal = _TURNED_AWAY if waiting.turned_away else waiting.denied
    sealed = _serializer().dumps([waiting.parameters, micros, waiting.selected, refusal])
    text = sealed if isinstance(sealed, str) else sealed.decode()
    if len(text) > MAX_LENGTH:
        raise TooLong
    return text


def unseal(text: str) -> SealedRequest | None:
    """The request, or `None` when it was not sealed by us or is older than `MAX_AGE`."""
    try:
        parameters, micros, selected, refusal = _serializer().loads(text, max_age=MAX_AGE)
    except (BadData, ValueError):
        return None
    asked_at = _EPOCH + timedelta(microseconds=micros)
    return SealedRequest(parameters, asked_at, selected, refusal is True, refusal == _TURNED_AWAY)


def expired(text: str) -> SealedRequest | None:
    """A request that we sealed and that is older than `MAX_AGE`: only good for a way back."""
    try:
        parameters, micros, *_ = _serializer().loads(text)
    except (BadData, ValueError):
        return None
    return SealedRequest(parameters, _EPOCH + timedelta(microseconds=micros))


class _Signer(TimestampSigner):
    """Takes the time from our clock."""

    def get_timestamp(self) -> int:
        return clock.timestamp(clock.now())


def _serializer() -> URLSafeTimedSerializer:
    # ensure_ascii: a `state` that is not UTF-8 travels as surrogates, which only escapes can hold.
    return URLSafeTimedSerializer(
        current.settings().signing_secrets,
        salt="authorization request",
        signer=_Signer,
        serializer_kwargs={"ensure_ascii": True},
    )
