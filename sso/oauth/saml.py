"""The requests of SAML service providers, and the assertions that answer them (Profiles §4.1).

A request is validated when it arrives. Then it waits, like every other authorization request, at
the pages of the dispatcher, and is validated again: the registration may have become narrower.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from flask import Response, render_template
from flask_babel import gettext
from sqlalchemy import Connection, select

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import urls
from sso.crypto import keys, secrets
from sso.flow import decision, saml_claims
from sso.flow import request as flow_request
from sso.flow.refusals import Cause, describe
from sso.flow.request import ONE_FACTOR, TWO_FACTORS, AuthorizationRequest, ClaimsRequest
from sso.i18n.message import Message, code_of
from sso.models import KeyState, User
from sso.oauth import response as oauth_response
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.authorization import Overtaken
from sso.ratelimit import refusals
from sso.saml import bindings, documents, received, sent, xml_signatures
from sso.saml.bindings import RedirectSignature, WeakAlgorithm, WrongSignature
from sso.saml.documents import EMAIL, PERSISTENT, UNSPECIFIED, Element, Malformed
from sso.saml.provider_metadata import base64_der, certificates, of_public_key
from sso.saml.received import ONE_FACTOR_CONTEXTS, TWO_FACTOR_CONTEXTS, AuthnRequest
from sso.saml.sent import NameId, SigningKey, Statement
from sso.store import approvals, redemption, users
from sso.store import keys as stored_keys
from sso.store import saml as stored
from sso.store.clients import RegisteredClient
from sso.store.sessions import ResourceOwner
from sso.store.users import UserProfile
from sso.web import headers
from sso.web.pending_request import MAX_AGE

REQUEST = "saml_request"  # its ID, among the parameters of a pending request
MOST_SKEW = timedelta(minutes=5)
OLDEST = timedelta(minutes=15)  # an authentication request, when it arrives
MAX_RELAY_STATE = 2000
_USED = "saml request"


class Refused(Exception):
    """A message is refused. `codes`: the status codes, where it can be answered."""

    def __init__(
        self,
        cause: str,
        codes: Sequence[str] = (sent.REQUESTER,),
        **facts: object,
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.codes = codes
        self.facts = facts
        self.client: RegisteredClient | None = None

    @property
    def variables(self) -> dict[str, object]:
        """The variables of the cause, for `explain`."""
        return self.cause.variables if isinstance(self.cause, Message) else {}


@dataclass(frozen=True)
class SamlRequest:
    """A request that waits at our pages, with the interface of a grant that waits there."""

    request: ProtocolRequest
    redirect_uri: str  # the assertion consumer service
    request_id: str
    relay_state: str | None


def refused_page(error: Refused) -> Response:
    """Return the page about a message that no service provider gets an answer to."""
    message = hint = None
    if error.client is None:
        message = gettext(
            "The application that sent you here is not registered here, or has been disabled."
        )
    elif code_of(error.cause) == Cause.SAML_USED_BEFORE:
        message = gettext("This sign-in was completed before.")
        hint = gettext("Open the application to sign in again.")
    elif code_of(error.cause) == Cause.SAML_CLOCK:
        hint = gettext(
            "Open the application to sign in again. If that does not help, its clock is wrong: "
            "tell an administrator."
        )
    name = error.client.name if error.client else None
    return oauth_response.invalid_page(str(error.cause), "saml_error", message, name, hint)


class Verified(NamedTuple):
    """A message, and its service provider. `is_signed`: by one of its certificates."""

    root: Element
    client: RegisteredClient
    is_signed: bool


def entity_id() -> str:
    """Return our entity ID, which is the URL of our metadata."""
    return context.settings().base_url + urls.SAML_METADATA


def sign_on_url() -> str:
    return context.settings().base_url + urls.SAML_SIGN_ON


def logout_url() -> str:
    return context.settings().base_url + urls.SAML_LOGOUT


def verify(
    connection: Connection, message: bytes, signature: RedirectSignature | None, destination: str
) -> Verified:
    """Parse a message, and verify its signature if its service provider has certificates.

    Raises `Refused`.
    """
    try:
        root = documents.parse(message)
        issuer = received.issuer_of(root)
    except Malformed as error:
        raise Refused(describe(Cause.SAML_MALFORMED, fault=str(error))) from None
    if len(issuer) > 1024 or "\0" in issuer:
        raise Refused(describe(Cause.SAML_MALFORMED, fault="its Issuer is too long"))
    client = stored.find_client(connection, issuer)
    if client is None:
        raise Refused(describe(Cause.SAML_UNKNOWN_ENTITY), entity_id=issuer)
    try:
        verified = _verified(root, client, signature)
        if received.issuer_of(verified.root) != issuer:
            raise WrongSignature
        named = verified.root.get("Destination") or ""
        # A signed message must have one (Bindings §3.4.5.2, §3.5.5.2).
        if named != destination and (named or verified.is_signed):
            raise Refused(
                describe(
                    Cause.SAML_WRONG_DESTINATION, sent=named[:300] or "(none)", expected=destination
                ),
                sent=named,
            )
    except Malformed as error:
        refused = Refused(_why_not_verified(error, client))
    except Refused as error:
        refused = error
    else:
        return verified
    refused.client = client
    raise refused


def _verified(
    root: Element, client: RegisteredClient, signature: RedirectSignature | None
) -> Verified:
    trusted = certificates(client.saml_certificates)
    is_enveloped = xml_signatures.is_signed(root)
    if not trusted or not (signature or is_enveloped):
        if client.signs_saml_requests:
            raise Refused(describe(Cause.SAML_NOT_SIGNED))
        return Verified(root, client, False)
    if signature:
        bindings.verify_redirect(signature, trusted)
    if is_enveloped:
        root = xml_signatures.verify(root, trusted)
    return Verified(root, client, True)


def _why_not_verified(error: Malformed, client: RegisteredClient) -> Message:
    if isinstance(error, WeakAlgorithm):
        return describe(Cause.SAML_WEAK_ALGORITHM)
    if not isinstance(error, WrongSignature):
        return describe(Cause.SAML_MALFORMED, fault=str(error))
    expires = str(client.client_metadata.get("saml_metadata_expires", ""))
    if expires and expires < documents.timestamp(clock.now()):
        return describe(Cause.SAML_METADATA_EXPIRED, expired=expires)
    return describe(Cause.SAML_INVALID_SIGNATURE)


def check_time(issued_at: datetime | None, oldest: timedelta = OLDEST) -> None:
    """Check when a message was issued. Raises `Refused`."""
    now = clock.now()
    if issued_at is None:
        raise Refused(describe(Cause.SAML_MALFORMED, fault="it has no IssueInstant"))
    if not now - oldest <= issued_at <= now + MOST_SKEW:
        sent_at, here = documents.timestamp(issued_at), documents.timestamp(now)
        raise Refused(describe(Cause.SAML_CLOCK, sent=sent_at, now=here))


def parameters_of(verified: Verified, relay_state: str | None) -> dict[str, str]:
    """Return the parameters of a pending request. Raises `Refused` unless the consumer service is
    registered: nothing is sent elsewhere.
    """
    client = verified.client
    try:
        asked = received.authn_request(verified.root)
        check_time(asked.issued_at)
        acs_url = _acs_url(asked, client)
    except Malformed as error:
        refused = Refused(describe(Cause.SAML_MALFORMED, fault=str(error)))
        refused.client = client
        raise refused from None
    except Refused as error:
        error.client = client
        raise
    prompts = [name for name, is_asked in (("login", asked.is_forced), ("none", asked.is_passive))
               if is_asked]  # fmt: skip
    values = {
        "client_id": client.client_id,
        "redirect_uri": acs_url,
        REQUEST: asked.id,
        "relay_state": relay_state,
        "prompt": "none" if "none" in prompts else " ".join(prompts),
        "name_id_format": asked.name_id_format,
        "contexts": json.dumps(list(asked.contexts)) if asked.contexts else None,
        "comparison": asked.comparison if asked.contexts else None,
        "login_hint": asked.login_hint,
        "unsupported": asked.unsupported,
    }
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _acs_url(asked: AuthnRequest, client: RegisteredClient) -> str:
    if asked.acs_url is None:
        if asked.acs_index not in (None, "0"):
            what = "an AssertionConsumerServiceIndex other than 0; send the URL"
            raise Refused(describe(Cause.SAML_UNSUPPORTED, what=what))
        return client.acs_urls[0]
    if asked.acs_url not in client.acs_urls:
        raise Refused(describe(Cause.SAML_UNREGISTERED_ACS), redirect_uri=asked.acs_url[:2000])
    return asked.acs_url


def resolve(request: ProtocolRequest) -> SamlRequest:
    """Validate a pending request; what it asks for is in `request.asked` then.

    Raises `Refused`; it can be answered if its `codes` are not empty.
    """
    values, client = request.payload.data, request.client
    acs_url = values["redirect_uri"]
    if client is None or not client.is_saml:
        raise Refused(describe(Cause.SAML_UNKNOWN_ENTITY), ())
    if acs_url not in client.acs_urls:
        raise Refused(describe(Cause.SAML_UNREGISTERED_ACS), (), redirect_uri=acs_url)
    request.authorization_request = _asked(values, client)
    return SamlRequest(request, acs_url, values[REQUEST], values.get("relay_state"))


def _asked(values: Mapping[str, str], client: RegisteredClient) -> AuthorizationRequest:
    if what := values.get("unsupported"):
        codes = (sent.REQUESTER, "RequestUnsupported")
        raise Refused(describe(Cause.SAML_UNSUPPORTED, what=what), codes)
    name_id_format = values.get("name_id_format", UNSPECIFIED)
    if name_id_format not in (UNSPECIFIED, _format_of(client.saml_name_id)):
        raise Refused(
            describe(Cause.SAML_NAME_ID_POLICY, sent=name_id_format[:200],
                     name_id=client.saml_name_id),
            (sent.REQUESTER, "InvalidNameIDPolicy"),
        )  # fmt: skip
    names = ("client_id", "redirect_uri", "prompt", "login_hint")
    asked = flow_request.parse(
        {name: values[name] for name in names if name in values},
        registered_scope=client.scope,
        require_pkce=False,
        require_state=False,
        hinted_subject=None,
        now=clock.now(),
        issuer=context.settings().issuer,
    )
    acr_values = _acr_values(values)
    if not acr_values:
        return asked
    claims = ClaimsRequest(acr_asked=True, acr_values=acr_values, acr_essential=True)
    return replace(asked, claims=claims)


def _format_of(name_id: str) -> str:
    return {"persistent": PERSISTENT, "email": EMAIL}.get(name_id, UNSPECIFIED)


def _acr_values(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the acr values that satisfy the requested contexts. Raises `Refused`."""
    contexts = _contexts(values)
    if not contexts:
        return ()
    comparison = values.get("comparison", "exact")
    acr_values = {ONE_FACTOR for name in contexts if name in ONE_FACTOR_CONTEXTS}
    acr_values |= {TWO_FACTORS for name in contexts if name in TWO_FACTOR_CONTEXTS}
    if comparison == "better":
        acr_values = {TWO_FACTORS} if acr_values == {ONE_FACTOR} else set()
    elif {"minimum": ONE_FACTOR, "maximum": TWO_FACTORS}.get(comparison) in acr_values:
        acr_values = {ONE_FACTOR, TWO_FACTORS}
    if not acr_values:
        codes = (sent.RESPONDER, "NoAuthnContext")
        raise Refused(describe(Cause.SAML_NO_AUTHN_CONTEXT), codes, sent=" ".join(contexts)[:500])
    return tuple(sorted(acr_values))


def _contexts(values: Mapping[str, str]) -> list[str]:
    return list(json.loads(values.get("contexts", "[]")))


def _context(values: Mapping[str, str], acr: str | None) -> str:
    """Return the authentication context to state: one that was asked for, if it is true."""
    usable = TWO_FACTOR_CONTEXTS if acr == TWO_FACTORS else ONE_FACTOR_CONTEXTS
    contexts = _contexts(values)
    fallback = usable[0]
    if acr == TWO_FACTORS and values.get("comparison", "exact") == "exact":
        # Two factors satisfy a request for one, which wants to read its own word.
        usable = (*usable, *ONE_FACTOR_CONTEXTS)
    return next((name for name in contexts if name in usable), fallback)


def answer(waiting: SamlRequest, client: RegisteredClient, owner: ResourceOwner) -> Response:
    """Answer with an assertion about the user, and store the approval.

    Raises `Overtaken`, and `Refused` if the request was answered before or the user has no NameID.
    """
    request, asked, now = waiting.request, waiting.request.asked, clock.now()
    connection = request.connection
    try:
        identifier = f"{client.client_id} {waiting.request_id}"
        use = redemption.SingleUse(_USED, str(owner.session_id), identifier, now + MAX_AGE)
        is_first = redemption.use_once(connection, use, now=now)
    except redemption.TooManyUsed:
        is_first = False
    if not is_first:
        raise Refused(describe(Cause.SAML_USED_BEFORE), ())
    name_id, attributes = told(connection, client, owner, asked.scope)
    grant_id = approvals.add_without_code(
        connection,
        approvals.Seen(
            client.updated_at, owner.user_seen, owner.consent.updated_at if owner.consent else None
        ),
        user_id=owner.user_id,
        client_id=client.client_id,
        session_id=owner.session_id,
        sid=str(owner.session_id),
        auth_time=owner.auth_time,
        amr=owner.amr,
        **decision.granted(asked, owner.acr),
    )
    if grant_id is None:
        raise Overtaken
    stored.keep_session(
        connection, grant_id, owner.session_id, client.client_id, name_id.value, name_id.format
    )
    statement = Statement(
        name_id,
        str(client.entity_id),
        waiting.redirect_uri,
        waiting.request_id,
        session_index(owner.session_id, client.client_id),
        owner.auth_time,
        _context(request.payload.data, decision.reached_acr(asked, owner.acr)),
        attributes,
        owner.ends_at,
    )
    return _posted(waiting, sent.response(statement, entity_id(), signing_key(connection), now))


def session_index(session_id: object, client_id: str) -> str:
    """Return the index of a session at one service provider; others cannot recognize it."""
    return f"_{secrets.digest(f'saml session {session_id} {client_id}')[:40]}"


def told(
    connection: Connection, client: RegisteredClient, owner: ResourceOwner, scope: str
) -> tuple[NameId, dict[str, list[str]]]:
    """Return NameID and attributes of a user. Raises `Refused` if there is no NameID."""
    user = _user(connection, owner)
    if client.saml_name_id == saml_claims.PERSISTENT:
        value = stored.persistent_id(connection, client.client_id, owner.user_id)
        return NameId(value, PERSISTENT), saml_claims.attributes_of(
            user, client.saml_attributes, scope, client.own_claims
        )
    text = saml_claims.name_of(user, client.saml_name_id, scope)
    if text is None:
        cause = describe(Cause.SAML_NAME_ID_MISSING, name_id=client.saml_name_id)
        raise Refused(cause, (sent.RESPONDER, "UnknownPrincipal"))
    return NameId(text, _format_of(client.saml_name_id)), saml_claims.attributes_of(
        user, client.saml_attributes, scope, client.own_claims
    )


def _user(connection: Connection, owner: ResourceOwner) -> UserProfile:
    """Return the user's profile, as it was when the session was read: else `add` fails."""
    statement = select(*users.USER_PROFILE).where(User.id == owner.user_id)
    return users.profile_of(dict(connection.execute(statement).one()._mapping))


_STATUS = {
    "access_denied": "RequestDenied",
    "login_required": "NoPassive",
    "interaction_required": "NoPassive",
    "consent_required": "NoPassive",
    "account_selection_required": "NoPassive",
}


def refuse(waiting: SamlRequest, refusal: decision.Refuse) -> Response:
    """Answer that there is no assertion, with the status that fits (Core §3.2.2.2)."""
    code = _STATUS.get(refusal.error, "RequestDenied")
    if code_of(refusal.description) == Cause.ACR_NOT_REACHED:
        code = "NoAuthnContext"
    return _refused(waiting, (sent.RESPONDER, code), refusal.description)


def answer_refused(request: ProtocolRequest, error: Refused) -> Response:
    """Send a refusal to the consumer service, which is registered."""
    values = request.payload.data
    waiting = SamlRequest(
        request, values["redirect_uri"], values[REQUEST], values.get("relay_state")
    )
    return _refused(waiting, error.codes, str(error.cause))


def _refused(waiting: SamlRequest, codes: Sequence[str], text: str) -> Response:
    key = signing_key(waiting.request.connection)
    return _posted(
        waiting,
        sent.refusal(waiting.redirect_uri, waiting.request_id, codes, text, entity_id(), key,
                     clock.now()),
    )  # fmt: skip


def _posted(waiting: SamlRequest, message: bytes) -> Response:
    """Return the page that posts an answer (Bindings §3.5.4)."""
    fields = [(bindings.RESPONSE, bindings.to_post(message))]
    if waiting.relay_state is not None:
        fields.append(("RelayState", waiting.relay_state))
    headers.allow_own_script()
    body = render_template("form_post.html", action=waiting.redirect_uri, fields=fields)
    return Response(body, mimetype="text/html", headers={"Cache-Control": "no-store"})


def record(event: Event, error: Refused, user: object = None) -> None:
    """Record a refusal, for the audit trail and for `explain`."""
    facts = {"user": user} if user else {}
    client = error.client.client_id if error.client else None
    uri = error.facts.get("redirect_uri")
    refusals.record(
        event,
        budget=event,
        facts={**error.variables, **facts, **error.facts},
        client=client,
        error="saml_error",
        description=error.cause,
        redirect_uri=refusals.without_query(str(uri)) if uri else None,
        entity_id=audit.clean(str(error.facts["entity_id"]), 300)
        if "entity_id" in error.facts else None,
    )  # fmt: skip


_keys: dict[str, RSAPrivateKey] = {}


def signing_key(connection: Connection) -> SigningKey:
    """Return the active key. Raises `KeyUnavailable`."""
    rows = stored_keys.saml_keys(connection)
    row = next((row for row in rows if row.state == KeyState.ACTIVE), None)
    if row is None:
        raise keys.KeyUnavailable(keys.NO_ACTIVE_KEY)
    if row.sealed_private_jwk not in _keys:
        private = keys.private_key(context.settings().secret_keys, row)
        _keys.clear()
        _keys[row.sealed_private_jwk] = private
    return SigningKey(_keys[row.sealed_private_jwk], of_public_key(row.public_jwk))


def published_certificates(connection: Connection) -> list[str]:
    """Return our certificates in base64: of the active key, and of the next one."""
    rows = stored_keys.saml_keys(connection)
    states = (KeyState.ACTIVE, KeyState.NEXT)
    return [
        base64_der(of_public_key(row.public_jwk))
        for state in states
        for row in rows
        if row.state == state
    ]


def site_of(client: RegisteredClient) -> str | None:
    """Return the URL of a service provider's site."""
    return urls.origin(client.acs_urls[0]) if client.acs_urls else None
