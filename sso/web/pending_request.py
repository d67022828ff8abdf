"""Pending authorization requests, which travel in the URL, signed and with their time.

Nothing is stored for a visitor who may never sign in, and several tabs, restarts and servers work.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from itsdangerous import BadData, URLSafeTimedSerializer

from sso import clock, context
from sso.crypto import secrets

MAX_AGE = timedelta(hours=24)  # a sign-in page left open overnight still works
MAX_LENGTH = 7000  # a request line may have 8190 bytes
_TURNED_AWAY = "turned away"
# Among the parameters, where older versions of the program ignore them.
_ONCE = "once"
_DONE = "done"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TooLong(ValueError):
    """The request does not fit into a URL."""


@dataclass(frozen=True)
class PendingRequest:
    """The parameters of a request, its time, and the results of the steps since then."""

    parameters: dict[str, str]
    asked_at: datetime | None = None  # None: the request has just arrived
    signed_in_at: datetime | None = None  # by a form of this request, like the next field
    consented_at: datetime | None = None
    selected: str | None = None
    selected_at: datetime | None = None
    denied: bool = False  # by the user, on the consent page
    turned_away: bool = False  # returns from the page about a missing group
    once: bool = False  # allowed on the consent page without a refresh token


def sign(pending: PendingRequest) -> str:
    """Sign a request. Raises `TooLong`, but never for a request that was signed before.

    The results of the steps add at most some 200 characters, for which a URL has room.
    """
    pending = replace(pending, asked_at=pending.asked_at or clock.now())
    text = _signed(pending)
    bare = PendingRequest(pending.parameters, pending.asked_at)
    if len(text) > MAX_LENGTH and len(_signed(bare)) > MAX_LENGTH:
        raise TooLong
    return text


def _signed(pending: PendingRequest) -> str:
    parameters = pending.parameters
    if pending.signed_in_at or pending.consented_at:
        done = (pending.signed_in_at, pending.consented_at)
        parameters = {**parameters, _DONE: " ".join(str(at and _micros(at)) for at in done)}
    if pending.once:
        parameters = {**parameters, _ONCE: "1"}
    selected = None
    if pending.selected and pending.selected_at:
        selected = [pending.selected, _micros(pending.selected_at)]
    # One value for both, because older versions of the program read four values.
    refusal = _TURNED_AWAY if pending.turned_away else pending.denied
    micros = pending.asked_at and _micros(pending.asked_at)
    signed = _serializer().dumps([parameters, micros, selected, refusal])
    return signed if isinstance(signed, str) else signed.decode()


def verify(text: str) -> PendingRequest | None:
    """Return a signed request, or `None` if the signature is invalid or it is too old.

    `MAX_AGE` counts from the arrival of the request, not from the signature: each step signs it
    again.
    """
    pending = expired(text)
    if pending is None or pending.asked_at is None or clock.now() - pending.asked_at > MAX_AGE:
        return None
    return pending


def expired(text: str) -> PendingRequest | None:
    """Return a signed request of any age. An old one only tells which client to go back to."""
    try:
        parameters, micros, selected, refusal = _serializer().loads(text)
    except (BadData, ValueError):
        return None
    # An older version signed the chosen user without the time; then the user is asked again.
    user_id, selected_micros = selected if isinstance(selected, list) else (None, None)
    selected_at = None if selected_micros is None else _moment(selected_micros)
    once = parameters.pop(_ONCE, None) is not None
    done = parameters.pop(_DONE, "None None").split()
    signed_in_at, consented_at = (None if at == "None" else _moment(int(at)) for at in done)
    return PendingRequest(
        parameters,
        _moment(micros),
        signed_in_at,
        consented_at,
        user_id,
        selected_at,
        denied=refusal is True,
        turned_away=refusal == _TURNED_AWAY,
        once=once,
    )


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _serializer() -> URLSafeTimedSerializer:
    return secrets.serializer("authorization request", *context.settings().signing_secrets)
