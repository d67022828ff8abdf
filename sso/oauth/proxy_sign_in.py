"""Sign-in for applications behind a proxy (forward auth): its cookies, and its own code flow.

This server is the client here. A request without a session gets a cookie with a random secret and
goes to the authorization endpoint; the code verifier and the nonce are derived from that secret and
from an identifier in `state`. So a code is of use in the browser only that asked for it, and many
tabs share one cookie. The code is redeemed for a ticket: a signed cookie on the application's host
that names client, origin and grant. Each request is checked against the grant as it is now.
"""

import json
import re
import secrets as random
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from authlib.oauth2.rfc6749.errors import InvalidGrantError
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy import Connection

from sso import clock, context
from sso.config.urls import ENDPOINTS
from sso.crypto import secrets
from sso.crypto.keys import KeyRing
from sso.flow import narrowing, own_claims, scopes, token_claims
from sso.flow.forwarded import CALLBACK, ForwardedRequest
from sso.flow.resources import normalized
from sso.oauth import resource_servers
from sso.oauth.grants.authorization_code import verify_code_verifier
from sso.store import redemption
from sso.store.clients import RegisteredClient
from sso.store.exchanges import SubjectToken
from sso.store.grants import LiveGrant
from sso.store.service_tokens import ServiceAccessToken

STATE_LASTS = timedelta(hours=24)  # as a sign-in page that is left open
ASSERTION_LASTS = 60  # seconds
ASSERTION_SERVES = 15  # seconds of them
ASSERTION_TYPE = "sso-assertion+jwt"
_BROWSER_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_LONGEST = 4096  # of a cookie or a state


class Refused(Exception):
    """A sign-in cannot be completed; `str()` says why, for the operator."""


@dataclass(frozen=True)
class Ticket:
    """The content of the application's cookie."""

    client_id: str
    origin: str
    grant_id: UUID


@dataclass(frozen=True)
class Attempt:
    """The content of `state`. `uri`: where to return to."""

    client_id: str
    origin: str
    uri: str
    number: str


def cookie_names() -> tuple[str, str]:
    """Return the names of the ticket's cookie and of the browser secret's.

    With the prefix, neither another host of the domain nor plain http can set them.
    """
    prefix = "__Host-" if context.settings().is_https else ""
    return f"{prefix}sso-session", f"{prefix}sso-browser"


def ticket(text: str | None, client_id: str, origin: str) -> Ticket | None:
    """Return the ticket of a cookie if it is for this client at this origin."""
    if not text or len(text) > _LONGEST:
        return None
    issued = _verified(text, tuple(context.settings().signing_secrets))
    return issued if issued and (issued.client_id, issued.origin) == (client_id, origin) else None


@lru_cache(maxsize=512)
def _verified(text: str, _signing_secrets: tuple[str, ...]) -> Ticket | None:
    """Verify the signature once: a tenth of a request. The grant is looked up for each one."""
    try:
        owner, place, grant = _serializer("session").loads(text)
        return Ticket(str(owner), str(place), UUID(hex=grant))
    except (BadData, ValueError, TypeError, AttributeError):
        return None


def sign_ticket(issued: Ticket) -> str:
    """Return the value of the cookie."""
    signed = _serializer("session").dumps([issued.client_id, issued.origin, issued.grant_id.hex])
    return signed if isinstance(signed, str) else signed.decode()


def browser_secret(cookie: str | None) -> str | None:
    """Return the secret in the browser's cookie, if it has the form of one."""
    return cookie if cookie and _BROWSER_SECRET.fullmatch(cookie) else None


def start(
    client: RegisteredClient, forwarded: ForwardedRequest, referrer: str | None, browser: str
) -> str:
    """Return the URL of the authorization request."""
    attempt = Attempt(
        client.client_id, forwarded.origin, forwarded.way_back(referrer), random.token_urlsafe(16)
    )
    signed = _serializer("state").dumps(list(vars(attempt).values()))
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": forwarded.origin + CALLBACK,
        "scope": _scope(client),
        "state": signed if isinstance(signed, str) else signed.decode(),
        "nonce": _derived("nonce", browser, attempt),
        "code_challenge": create_s256_code_challenge(_derived("verifier", browser, attempt)),
        "code_challenge_method": "S256",
    }
    return f"{context.settings().base_url}{ENDPOINTS['authorization']}?{urlencode(parameters)}"


def attempt_of(state: str, client_id: str, origin: str) -> Attempt:
    """Return the attempt that a state is of. Raises `Refused`."""
    try:
        if len(state) > _LONGEST:
            raise Refused("The state is too long.")
        seconds = int(STATE_LASTS.total_seconds())
        attempt = Attempt(*_serializer("state").loads(state, max_age=seconds))
    except (BadData, ValueError, TypeError):
        raise Refused("The state was not made here, or is older than a day.") from None
    if (attempt.client_id, attempt.origin) != (client_id, origin):
        raise Refused("The state belongs to another application or host.")
    return attempt


def redeem(
    connection: Connection, attempt: Attempt, code: str, browser: str | None
) -> tuple[Ticket, LiveGrant]:
    """Redeem a code for a ticket; the caller commits. Raises `Refused`.

    A code that is used again ends nothing: it is worth nothing without the browser's secret, and
    people reload pages.
    """
    if browser is None:
        raise Refused("The browser did not send the cookie with which it was sent to sign in.")
    digest, now = secrets.digest(code), clock.now()
    client, stored, grant = redemption.find_code_with_client(
        connection, attempt.client_id, digest, now
    )
    if client is None or stored is None or grant is None or not stored.is_live(now):
        raise Refused("The code is unknown, expired or used, or what it was issued for has ended.")
    if stored.redirect_uri != attempt.origin + CALLBACK:
        raise Refused("The code was issued for another address.")
    try:
        if stored.code_challenge is None or stored.nonce is None:
            raise Refused("The code was issued to a request that was not made here.")
        verify_code_verifier(_derived("verifier", browser, attempt), stored.code_challenge)
    except InvalidGrantError:
        raise Refused("The code was issued to another browser, or to another attempt.") from None
    if not secrets.is_equal(stored.nonce, _derived("nonce", browser, attempt)):
        raise Refused("The nonce is that of another request.")
    if not redemption.use_code(connection, digest, client.client_id, now):
        raise Refused("The code was used a moment ago.")
    return Ticket(attempt.client_id, attempt.origin, grant.id), grant


def identity(client: RegisteredClient, grant: LiveGrant, origin: str) -> dict[str, str] | None:
    """Return the headers about the user of a grant; `None` if the grant gives nothing any more."""
    if not grant.session_is_live:  # also with offline_access: a browser has a session
        return None
    try:
        scope, requested = narrowing.what_is_left(client, grant.user.groups, grant)
    except narrowing.NothingLeft:
        return None
    room = own_claims.ROOM[own_claims.ACCESS_TOKEN]  # as for a token in a header
    claims = token_claims.of_userinfo(grant.user, client, scope, requested, room=room)
    claims.pop("id", None), claims.pop("emailVerified", None)
    about_sign_in = {
        "auth_time": clock.timestamp(grant.auth_time),
        "amr": grant.amr.split(),
        "sid": grant.sid,
        **({"acr": grant.acr} if grant.acr else {}),
    }
    return _headers({**about_sign_in, **claims, "sub": str(grant.user_id)}, client, origin)


def identity_of_machine(
    connection: Connection, client: RegisteredClient, token: str, origin: str
) -> dict[str, str] | None:
    """Return the headers about an access token whose audience is the application; else `None`.

    A person's token is held to the client's groups and second factor, too.
    """
    identifier = normalized(origin)
    access_token = resource_servers.find(connection, identifier, token)
    if access_token is None:
        return None
    usable = resource_servers.usable(connection, access_token, token)
    if usable is None or usable.dpop_jkt:
        return None
    if not isinstance(access_token, ServiceAccessToken):
        if isinstance(access_token, SubjectToken):
            groups = access_token.grant.user.groups
        else:
            groups = access_token.user.groups
        if narrowing.why_not_admitted(client, groups, access_token.grant):
            return None
    claims = {"sub": usable.claims["sub"], "client_id": usable.claims["client_id"]}
    if usable.scope:
        claims["scope"] = usable.scope
    return _headers(claims, client, origin)


NOBODY = dict.fromkeys(
    ("Remote-User", "Remote-Email", "Remote-Name", "Remote-Groups", "X-Sso-Assertion"), ""
)
"""The headers of a request without a user: all are there, so that no forged one passes."""


def _headers(claims: dict[str, Any], client: RegisteredClient, origin: str) -> dict[str, str]:
    """Return the headers about a user.

    An email address stands alone there, and so only if it is verified. Names of groups have no
    commas.
    """
    email = claims.get("email") if claims.get("email_verified") else None
    values = {
        "Remote-User": claims["sub"],
        "Remote-Email": email or "",
        "Remote-Name": claims.get("name", ""),
        "Remote-Groups": ",".join(claims.get("groups", ())),
    }
    headers = {name: _as_header(text) for name, text in values.items()}
    return {**headers, "X-Sso-Assertion": _assertion(claims, client, origin)}


def _as_header(text: str) -> str:
    """Return a text as UTF-8 in a header, without control characters."""
    if not text.isprintable():
        text = "".join(character for character in text if character.isprintable())
    return text.encode("utf-8", "replace").decode("latin-1")


def _assertion(claims: dict[str, Any], client: RegisteredClient, origin: str) -> str:
    now = clock.timestamp(clock.now())
    issued = max(now - now % ASSERTION_SERVES, claims.get("auth_time", 0))
    registered = {
        "iss": context.settings().issuer,
        "aud": origin,
        "iat": issued,
        "exp": issued + ASSERTION_LASTS,
    }
    alg = client.id_token_signed_response_alg
    ring = context.key_ring()
    return _signed(ring, ring.active(alg).kid or "", alg, json.dumps({**claims, **registered}))


@lru_cache(maxsize=512)
def _signed(ring: KeyRing, _kid: str, alg: str, claims: str) -> str:
    """Sign an assertion once for the requests of a page.

    Signing costs as much as the statement. What it says is decided for each request.
    """
    return ring.sign(json.loads(claims), alg, ASSERTION_TYPE)


def _scope(client: RegisteredClient) -> str:
    return " ".join(name for name in scopes.split(client.scope) if name != "offline_access")


def _derived(kind: str, browser: str, attempt: Attempt) -> str:
    return secrets.derive_secret("", f"{kind} {attempt.number}", browser.encode())


def _serializer(kind: str) -> URLSafeTimedSerializer:
    return secrets.serializer(f"forward auth {kind}", *context.settings().signing_secrets)
