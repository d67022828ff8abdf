"""The endpoints of SAML: metadata, single sign-on, and single logout."""

from flask import Response as FlaskResponse
from flask import redirect, request, url_for
from sqlalchemy import Connection
from werkzeug.wrappers import Response

from sso import clock, database
from sso.audit.events import Event
from sso.endpoints import authorize, browser_session, sign_out
from sso.flow.refusals import Cause, describe
from sso.oauth import saml, saml_logout
from sso.oauth.response import to_exactly
from sso.oauth.saml import Refused, Verified
from sso.saml import bindings
from sso.saml.bindings import REQUEST, RESPONSE
from sso.saml.documents import Malformed
from sso.saml.provider_metadata import identity_provider
from sso.store import saml as stored
from sso.web import errors, parameters, pending_request
from sso.web.pending_request import PendingRequest


def metadata() -> Response:
    """Our metadata, for service providers."""
    with database.reading() as connection:
        certificates = saml.published_certificates(connection)
    if not certificates:
        return errors.as_json(
            "not_found", "No application speaks SAML here; register one first.", 404
        )
    body = identity_provider(saml.entity_id(), saml.sign_on_url(), saml.logout_url(), certificates)
    return FlaskResponse(body, mimetype="application/samlmetadata+xml")


def sign_on() -> Response:
    """Take an authentication request by redirect or by post, and go on at the dispatcher."""
    with database.reading() as connection:
        try:
            message, signature, relay_state = _message()
            verified = saml.verify(connection, message, signature, saml.sign_on_url())
            values = saml.parameters_of(verified, relay_state)
        except Refused as error:
            return _refused(error, Event.SAML_REFUSED)
    try:
        return authorize.to_step("pages.authorize", PendingRequest(values, clock.now()))
    except pending_request.TooLong:
        fault = describe(Cause.SAML_MALFORMED, fault="it is too long, with its RelayState")
        return _refused(Refused(fault), Event.SAML_REFUSED)


def _message(name: str = REQUEST) -> tuple[bytes, bindings.RedirectSignature | None, str | None]:
    """Return message, signature and RelayState of this request. Raises `Refused`."""
    names = (name, "RelayState", "SigAlg", "Signature")
    try:
        is_post = request.method == "POST"
        pairs = parameters.form_pairs(request) if is_post else parameters.query_pairs(request)
        values = parameters.single(pairs, names)
        relay_state = values.get("RelayState")
        if relay_state is not None and (
            len(relay_state) > saml.MAX_RELAY_STATE or not parameters.is_text(relay_state)
            or any(c in relay_state for c in "\0\r\n")
        ):  # fmt: skip
            raise Malformed("the RelayState is too long, or no line of UTF-8")
        if name not in values:
            raise Malformed(f"the parameter {name} is missing")
        if is_post:
            return bindings.from_post(values[name]), None, relay_state
        signature = bindings.redirect_signature(request.query_string, name)
        return bindings.from_redirect(values[name]), signature, relay_state
    except (parameters.ParameterFault, Malformed) as error:
        raise Refused(describe(Cause.SAML_MALFORMED, fault=str(error))) from None


def _refused(error: Refused, event: Event) -> Response:
    """Show why a message is refused. Nobody is sent anywhere."""
    saml.record(event, error)
    return saml.refused_page(error)


def logout() -> Response:
    """Take a logout request, or the answer to one, by redirect; both go on by redirect."""
    if finish := request.args.get("finish"):
        with database.reading() as connection:
            return saml_logout.finish(connection, finish) or redirect(
                url_for("pages.sign_out"), 303
            )
    name = RESPONSE if RESPONSE in request.args else REQUEST
    connection = database.session_connection()
    try:
        message, signature, relay_state = _message(name)
        verified = saml.verify(connection, message, signature, saml.logout_url())
        if name == RESPONSE:
            saml_logout.note_answer(verified)
        else:
            return _logout_for(verified, relay_state, connection)
    except Refused as error:
        if name == REQUEST or not saml_logout.is_under_way():
            return _refused(error, Event.SAML_LOGOUT_REFUSED)
        saml.record(Event.SAML_LOGOUT_REFUSED, error)  # nothing can stop the rest
        saml_logout.note_failure()
    if not saml_logout.is_under_way():
        return redirect(url_for("pages.sign_out"), 303)
    url, _ = saml_logout.next_url(connection)
    return to_exactly(url)


def _logout_for(verified: Verified, relay_state: str | None, connection: Connection) -> Response:
    """End the session that a request names; ask the person if nothing proves the request."""
    asked, client = saml_logout.request_of(verified), verified.client
    then = saml_logout.finish_url(client.client_id, asked.id, relay_state)
    current = browser_session.current_session()
    if current is None:
        return to_exactly(then)
    sessions = stored.live_sessions(current.session.id)
    if not saml_logout.names_session(connection, asked, verified, current, sessions):
        return redirect(sign_out.asking_url(then), 303)
    answer = sign_out.sign_out_upstream("saml_logout", then, asking=client.client_id)
    return answer or to_exactly(then)
