"""The authorization endpoint (RFC 6749 §3.1, OIDC Core §3.1.2): the dispatcher of all steps.

It parses, validates and decides. Sign-in and consent are steps that return here with the signed
request.
"""

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import redirect, request, url_for
from flask_babel import gettext
from sqlalchemy import Connection
from werkzeug.wrappers import Response

from sso import audit, clock, context, database
from sso.audit.events import Event
from sso.endpoints import browser_session
from sso.flow import decision, resources, scopes, token_claims
from sso.flow.refusals import Reason
from sso.flow.request import ONE_FACTOR, PARAMETERS, REPEATABLE, AuthorizationRequest
from sso.i18n import languages
from sso.oauth import (
    authorization_request,
    authorization_server,
    device_authorization,
    document_clients,
)
from sso.oauth import response as oauth_response
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.authorization import Overtaken
from sso.oauth.authorization_request import SignedRequest
from sso.oauth.device_authorization import DeviceRequest
from sso.oauth.grants.authorization_code import AuthorizationCodeGrant
from sso.process import program
from sso.ratelimit import refusals
from sso.services import transaction
from sso.store import clients, factors, sessions, users
from sso.store.clients import RegisteredClient
from sso.store.sessions import ResourceOwner
from sso.web import errors, parameters, pending_request
from sso.web.pending_request import PendingRequest

if TYPE_CHECKING:
    from sso.oauth import saml
else:
    saml = program.late_module("sso.oauth.saml")  # 12 MB, with lxml and signxml


class Validated(NamedTuple):
    """A valid authorization request; `owner` is signed in in its browser."""

    grant: "AuthorizationCodeGrant | DeviceRequest | saml.SamlRequest"
    client: RegisteredClient
    waiting: PendingRequest
    owner: ResourceOwner | None
    connection: Connection


_SAML_REQUEST = "saml_request"  # as in `saml`, which is not imported for this


def is_saml(waiting: PendingRequest) -> bool:
    """Return whether a pending request is of a service provider of SAML."""
    return _SAML_REQUEST in waiting.parameters


def authorize() -> Response:
    """Authorization endpoint: answer the request, or redirect the browser to the next step."""
    if request.method == "POST":
        return oauth_response.as_get(url_for("pages.authorize"))
    try:
        waiting = _read()
    except parameters.ParameterFault as error:
        oauth_response.note_fault(error, request.args.get("client_id"))
        return oauth_response.invalid_page(str(error))
    if waiting is None:
        return stale()
    if device_authorization.is_of_device(waiting.parameters):
        return to_step("pages.device", waiting)
    document_clients.examine(waiting.parameters.get("client_id", ""))
    context.key_ring().refresh()
    signed = authorization_request.examine_request_object(waiting.parameters)
    with transaction.Transaction() as changes:
        validated = validate(waiting, changes.connection, signed)
        if isinstance(validated, Response):
            return validated
        step, owner = decide(validated), validated.owner
        try:
            response = _answer(validated, step)
        except Overtaken:
            return _on(validated, "pages.authorize", validated.waiting)
        if owner:
            browser_session.prolong(
                changes.connection, owner.session_id, owner.last_seen_at, owner.ends_at
            )
        if not isinstance(step, decision.Answer | decision.Refuse):
            authorization_request.keep_for_user(validated.grant.request, waiting.parameters)
        elif not authorization_request.use_pushed(validated.grant.request):
            used_before = authorization_request.InvalidRequestUri(Reason.USED_BEFORE)
            return stale(waiting, changes.connection, used_before)
        changes.commit()
    if owner and isinstance(step, decision.Answer):
        event = Event.SAML_ASSERTION_ISSUED if is_saml(waiting) else Event.CODE_ISSUED
        audit.own_event(event, owner.user_id, client=validated.client.client_id)
    return response


def validate(
    waiting: PendingRequest, connection: Connection, signed: SignedRequest | None = None
) -> Validated | Response:
    """Validate a request as if it arrived now; return an error page or redirect on a fault."""
    if device_authorization.is_of_device(waiting.parameters):
        return _validate_device(waiting, connection)
    if is_saml(waiting):
        return _validate_saml(waiting, connection)
    server = authorization_server()
    protocol_request = ProtocolRequest(waiting.parameters)
    protocol_request.connection = connection
    client_id = (
        protocol_request.payload.client_id or ""
    )  # first: the language of errors depends on it
    if authorization_request.is_pushed(waiting.parameters):
        digest = authorization_request.digest_of_pushed(waiting.parameters)
        protocol_request.client, owner, pushed = browser_session.find_with_client_and_pushed(
            connection, client_id, digest
        )
    else:
        protocol_request.client, owner = browser_session.find_with_client(connection, client_id)
        pushed = None
    try:
        authorization_request.resolve_pushed(
            protocol_request, pushed, is_waiting=waiting.asked_at is not None
        )
    except OAuth2Error as error:
        oauth_response.note_refusal(protocol_request, error)
        return stale(waiting, connection, error)
    languages.ask_for(protocol_request.payload.data.get("ui_locales"))
    if owner:
        protocol_request.details["user"] = owner.user_id
    try:
        if waiting.asked_at is None and not protocol_request.is_pushed:
            authorization_request.apply_request_object(protocol_request, signed)
        grant: AuthorizationCodeGrant = server.get_consent_grant(protocol_request)
    except OAuth2Error as error:
        return server.handle_error_response(protocol_request, error)
    if waiting.asked_at is not None:
        protocol_request.authorization_request = _resumed(protocol_request.asked, waiting)
    else:
        sent_parameters = protocol_request.payload.data
        kept_parameters = (
            sent_parameters if signed else waiting.parameters
        )  # parameters within a signed request replace it
        waiting = PendingRequest(kept_parameters, protocol_request.asked.asked_at)
        _record_dropped(sent_parameters.get("scope"), protocol_request.asked)
    return Validated(grant, grant.client, waiting, owner, connection)


def _validate_saml(waiting: PendingRequest, connection: Connection) -> Validated | Response:
    """As `validate`, for a service provider of SAML."""
    protocol_request = ProtocolRequest(waiting.parameters)
    protocol_request.connection = connection
    client_id = waiting.parameters["client_id"]
    client, owner = browser_session.find_with_client(connection, client_id)
    protocol_request.client = client
    try:
        grant = saml.resolve(protocol_request)
    except saml.Refused as error:
        error.client = client
        return _refuse_saml(protocol_request, error)
    protocol_request.authorization_request = _resumed(protocol_request.asked, waiting)
    return Validated(grant, protocol_request.client, waiting, owner, connection)


def _refuse_saml(request: ProtocolRequest, error: "saml.Refused") -> Response:
    saml.record(Event.SAML_REFUSED, error)
    if error.codes:
        return saml.answer_refused(request, error)
    return saml.refused_page(error)


def _answer_saml(validated: Validated, decided: decision.Answer | decision.Refuse) -> Response:
    """Answer a service provider of SAML. Raises `Overtaken`."""
    grant, client = validated.grant, validated.client
    assert isinstance(grant, saml.SamlRequest)
    if isinstance(decided, decision.Refuse):
        if not grant.request.asked.denied:  # that event is consent_denied
            refused = saml.Refused(decided.description)
            refused.client = client
            saml.record(Event.SAML_REFUSED, refused)
        return saml.refuse(grant, decided)
    assert validated.owner
    grant.request.authorization_request = grant.request.asked.without(decided.withheld)
    try:
        response = saml.answer(grant, client, validated.owner)
    except saml.Refused as error:
        error.client = client
        return _refuse_saml(grant.request, error)
    if decided.uses and not _use(validated, decided.uses):
        raise Overtaken
    return response


def _resumed(asked: AuthorizationRequest, waiting: PendingRequest) -> AuthorizationRequest:
    """Return the request with what our steps have found out since it came in."""
    return replace(
        asked,
        resumed=True,
        asked_at=waiting.asked_at or asked.asked_at,
        signed_in_at=waiting.signed_in_at,
        consented_at=waiting.consented_at,
        selected=waiting.selected,
        selected_at=waiting.selected_at,
        denied=waiting.denied,
        turned_away=waiting.turned_away,
        once=waiting.once,
    )


def _validate_device(waiting: PendingRequest, connection: Connection) -> Validated | Response:
    """As `validate`, for a device; if it no longer waits, another code is asked for."""
    protocol_request = ProtocolRequest(waiting.parameters)
    protocol_request.connection = connection
    client_id = waiting.parameters.get("client_id", "")
    protocol_request.client, owner = browser_session.find_with_client(connection, client_id)
    try:
        grant = device_authorization.resolve(protocol_request)
    except device_authorization.InvalidUserCode as error:
        device_authorization.record_invalid(error, owner.user_id if owner else None, client_id)
        return to_device(problem="code")
    except OAuth2Error as error:
        return authorization_server().handle_error_response(protocol_request, error)
    protocol_request.authorization_request = _resumed(protocol_request.asked, waiting)
    return Validated(grant, protocol_request.client, waiting, owner, connection)


def decide(validated: Validated) -> decision.Decision:
    """Return the decision of `flow.decision` about a request."""
    session = None
    parameters, client, owner = validated.grant.request.asked, validated.client, validated.owner
    policy = client.policy_at(parameters.redirect_uri)
    if parameters.resources:
        apis = validated.grant.request.apis
        groups = {name: apis[name].groups for name in parameters.resources if apis[name].groups}
        policy = replace(policy, api_groups=groups)
    if terms_version := context.settings().terms_version:
        policy = replace(policy, terms_version=terms_version)
    if owner:
        # Queried only if it matters: most requests need no statement.
        matters = owner.acr == ONE_FACTOR and decision.asks_about_factors(parameters, policy)
        session = decision.Session(
            user_id=str(owner.user_id),
            auth_time=owner.auth_time,
            acr=owner.acr,
            groups=frozenset(owner.groups),
            has_factor=matters and factors.has_any(validated.connection, owner.user_id),
            decisions_used_until=owner.decisions_used_until,
            terms_version=owner.terms_version,
            subject=_subject(owner.user_id, client) if parameters.names_user else None,
        )
    consent = decision.Consent.of(owner.consent if owner else None)
    return decision.decide(parameters, session, consent, policy, clock.now())


def _subject(user_id: UUID, client: RegisteredClient) -> str | None:
    """Return what the client knows a user by, unless that is the user's ID."""
    attribute = client.subject_attribute
    user = users.find(user_id) if attribute else None
    return token_claims.subject(user, attribute, client.client_id) if user else None


def read_waiting() -> PendingRequest | None:
    """Return the signed request in the URL of a step, or `None`."""
    signed = request.args.get("resume", "")
    return pending_request.verify(signed) if signed else None


def resume(waiting: PendingRequest) -> Response:
    """Redirect the browser back to the dispatcher."""
    return to_step("pages.authorize", waiting)


def to_step(endpoint: str, waiting: PendingRequest, **more: Any) -> Response:
    """Redirect the browser to a step, or back, with the signed request."""
    return redirect(url_for(endpoint, resume=pending_request.sign(waiting), **more), 303)


def to_device(**result: Any) -> Response:
    """Send the browser to the page that asks for the code of a device."""
    return redirect(url_for("pages.device", **result), 303)


def stale(
    old: PendingRequest | None = None,
    on: Connection | None = None,
    error: OAuth2Error | None = None,
) -> Response:
    """Return an error page for a step without a valid request, with a link to its client.

    `error`: the fault of its request URI, for the developers of the application.
    """
    old = old or pending_request.expired(request.args.get("resume", ""))
    return errors.page(
        gettext("This page has expired, or its address is incomplete."),
        title=gettext("Please start again"),
        hint=gettext("Return to the application and sign in from there."),
        error=error.error if error else None,
        detail=error.get_error_description() if error else None,
        link=_way_back(old, on or database.session_connection()) if old else None,
    )


def _way_back(old: PendingRequest, connection: Connection) -> tuple[str, str] | None:
    uri = old.parameters.get("redirect_uri") or authorization_request.redirect_uri_of(
        connection, old.parameters
    )
    client = clients.find_enabled(connection, old.parameters.get("client_id", ""))
    if client is None or not client.check_redirect_uri(uri):
        return None
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or client.policy_at(uri).ask_each_time:
        return None  # a program has no site
    return gettext("Back to %(client)s", client=client.name), f"{parts.scheme}://{parts.netloc}/"


def _read() -> PendingRequest | None:
    pairs = parameters.query_pairs(request)
    if any(name == "resume" for name, _ in pairs):
        return read_waiting()
    values = parameters.single(pairs, PARAMETERS, REPEATABLE)
    # These two are looked up before the others are validated; PostgreSQL refuses NUL.
    parameters.check_clean(values, ("client_id", "redirect_uri"))
    if authorization_request.is_pushed(values):  # other parameters are ignored
        return PendingRequest({name: values.get(name, "") for name in ("client_id", "request_uri")})
    return PendingRequest({name: values[name] for name in PARAMETERS if name in values})


def _record_dropped(requested: str | None, parameters: AuthorizationRequest) -> None:
    """Record the scopes that are dropped, once for each request, when it arrives."""
    granted = " ".join(map(resources.scope_of, scopes.split(parameters.scope)))
    if dropped := scopes.dropped(requested, granted):
        event = Event.SCOPE_DROPPED
        refusals.record(event, budget=event, client=parameters.client_id, dropped=dropped)


def _use(validated: Validated, moment: datetime) -> bool:
    """Use up the user's decisions until a moment; return False if another request has."""
    owner = validated.owner
    return owner is not None and sessions.use_decisions(
        validated.connection, owner.session_id, owner.decisions_used_until, moment
    )


def _answer(validated: Validated, decided: decision.Decision) -> Response:
    # If the next step turns the user away again, they see that page again.
    waiting = replace(validated.waiting, turned_away=False)
    if isinstance(decided, decision.Answer | decision.Refuse) and is_saml(waiting):
        return _answer_saml(validated, decided)
    if not isinstance(decided, decision.Answer | decision.Refuse):
        return _on(validated, endpoint_of(decided), waiting)
    server, grant = authorization_server(), validated.grant
    assert isinstance(grant, AuthorizationCodeGrant)
    if isinstance(decided, decision.Answer):
        grant.request.authorization_request = grant.request.asked.without(decided.withheld)
        grant.request.writes_code_alone = not decided.uses
        # Authlib's method of the server would validate the request again.
        answer = grant.create_authorization_response(grant.redirect_uri, validated.owner)
        if decided.uses and not _use(validated, decided.uses):
            raise Overtaken
        return server.handle_response(*answer)
    grant.request.is_reported = grant.request.asked.denied  # the event is consent_denied
    error = OAuth2Error(decided.description, error=decided.error, redirect_uri=grant.redirect_uri)
    return server.handle_error_response(grant.request, error)


def endpoint_of(step: decision.Step) -> str:
    """Return the page of a step."""
    if isinstance(step, decision.SignIn):
        return "pages.sign_in"
    if isinstance(step, decision.SecondFactor):
        return "pages.factors" if step.enrol else "pages.second_factor"
    return "pages.terms" if isinstance(step, decision.AcceptTerms) else "pages.consent"


def _on(validated: Validated, endpoint: str, waiting: PendingRequest) -> Response:
    """Redirect to a step or to the dispatcher; refuse a request that is too long to sign."""
    try:
        return to_step(endpoint, waiting)
    except pending_request.TooLong:
        error = OAuth2Error(
            "The authorization request is too long.",
            error="invalid_request",
            redirect_uri=validated.grant.redirect_uri,
        )
        return authorization_server().handle_error_response(validated.grant.request, error)
