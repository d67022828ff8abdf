"""Single logout of SAML by redirect (Profiles §4.4): one service provider after the other.

The session here has ended before the first one is asked. What is still to do is in the browser's
cookie, so that nobody else can go on with it.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import flask
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy import Connection
from werkzeug.wrappers import Response

from sso import clock, context
from sso.crypto import secrets
from sso.flow.refusals import Cause, describe
from sso.oauth import saml
from sso.oauth.response import to_exactly
from sso.oauth.saml import Refused, Verified
from sso.saml import bindings, received, sent
from sso.saml.documents import Malformed
from sso.saml.received import LogoutRequest
from sso.saml.sent import NameId
from sso.store import clients, redemption
from sso.store.saml import LiveSession
from sso.store.sessions import CurrentSession

_CHAIN, _PARTIAL = "saml_logout", "saml_logout_partial"
_MOST = 15  # service providers: the cookie holds them
_PURPOSE, _USED = "saml logout response", "saml logout"
_LIFETIME = 900  # seconds, to sign out everywhere


def begin(sessions: Sequence[LiveSession], session_id: UUID, then: str, asking: str | None) -> None:
    """Remember which service providers are to be asked, and where the browser goes at last.

    `asking`: the client that began, which knows already.
    """
    waiting = [
        [told.client_id, told.name_id, told.name_id_format,
         saml.session_index(session_id, told.client_id)]
        for told in sessions if told.client_id != asking
    ]  # fmt: skip
    flask.session[_CHAIN] = {"waiting": waiting[:_MOST], "then": then, "asked": None}
    flask.session[_PARTIAL] = len(waiting) > _MOST


def is_under_way() -> bool:
    """Return whether this browser is being signed out."""
    return _CHAIN in flask.session


def next_url(connection: Connection) -> tuple[str, str | None]:
    """Return the next URL, and the name of its service provider; without one, it is the last."""
    chain = flask.session[_CHAIN]
    while chain["waiting"]:
        client_id, name_id, name_id_format, index = chain["waiting"].pop(0)
        client = clients.find_enabled(connection, client_id)
        if client is None or client.saml_logout_url is None:
            flask.session[_PARTIAL] = True
            continue
        chain["asked"], message = sent.logout_request(
            NameId(name_id, name_id_format), index, client.saml_logout_url, saml.entity_id(),
            clock.now(),
        )  # fmt: skip
        flask.session[_CHAIN] = chain
        flask.session.modified = True
        return _url(
            client.saml_logout_url, bindings.REQUEST, message, None, connection
        ), client.name
    del flask.session[_CHAIN]
    return chain["then"], None


def _url(
    location: str, name: str, message: bytes, relay_state: str | None, connection: Connection
) -> str:
    key = saml.signing_key(connection).private
    separator = "&" if "?" in location else "?"
    return f"{location}{separator}{bindings.redirect_query(name, message, relay_state, key)}"


def note_answer(verified: Verified) -> None:
    """Take the answer of a service provider; one that is wrong or negative makes it partial."""
    try:
        answer = received.logout_response(verified.root)
    except Malformed as error:
        raise Refused(describe(Cause.SAML_MALFORMED, fault=str(error))) from None
    chain = flask.session.get(_CHAIN, {})
    if not answer.is_success or answer.in_response_to != chain.get("asked"):
        flask.session[_PARTIAL] = True


def note_failure() -> None:
    """Remember that a service provider could not be signed out."""
    flask.session[_PARTIAL] = True


def request_of(verified: Verified) -> LogoutRequest:
    """Read a logout request. Raises `Refused`."""
    try:
        asked = received.logout_request(verified.root)
        saml.check_time(asked.issued_at)
        if asked.expires_at and asked.expires_at <= clock.now() - sent.SKEW:
            raise Malformed("it has expired, by its NotOnOrAfter")
    except Malformed as error:
        refused = Refused(describe(Cause.SAML_MALFORMED, fault=str(error)))
        refused.client = verified.client
        raise refused from None
    except Refused as error:
        error.client = verified.client
        raise
    return asked


def names_session(
    connection: Connection,
    asked: LogoutRequest,
    verified: Verified,
    current: CurrentSession,
    sessions: Sequence[LiveSession],
) -> bool:
    """Return whether a signed request names this browser's session; it does so once."""
    client_id, session_id = verified.client.client_id, current.session.id
    is_told = any(
        told.client_id == client_id and told.name_id == asked.name_id for told in sessions
    )
    index = saml.session_index(session_id, client_id)
    if not (verified.is_signed and is_told) or (
        asked.session_indexes and index not in asked.session_indexes
    ):
        return False
    now = clock.now()
    expires_at = now + saml.OLDEST + timedelta(minutes=10)
    use = redemption.SingleUse(_USED, str(session_id), f"{client_id} {asked.id}", expires_at)
    try:
        return redemption.use_once(connection, use, now=now)
    except redemption.TooManyUsed:
        return False


def finish_url(client_id: str, request_id: str, relay_state: str | None) -> str:
    """Return the URL of ours that sends a service provider its logout response."""
    text = _serializer().dumps([client_id, request_id, relay_state])
    value = text if isinstance(text, str) else text.decode()
    return f"{saml.logout_url()}?finish={value}"


def finish(connection: Connection, text: str) -> Response | None:
    """Send the logout response; return `None` if there is nobody to send it to."""
    try:
        client_id, request_id, relay_state = _serializer().loads(text, max_age=_LIFETIME)
    except (BadData, ValueError):
        return None
    client = clients.find_enabled(connection, client_id)
    # `pop` would change the cookie of a browser that has none.
    is_partial = _PARTIAL in flask.session and bool(flask.session.pop(_PARTIAL))
    if client is None or client.saml_logout_url is None:
        return None
    message = sent.logout_response(
        client.saml_logout_url, request_id, is_partial, saml.entity_id(), clock.now()
    )
    url = _url(client.saml_logout_url, bindings.RESPONSE, message, relay_state, connection)
    return to_exactly(url)


def _serializer() -> URLSafeTimedSerializer:
    return secrets.serializer(_PURPOSE, *context.settings().signing_secrets)
