"""Sign-in at the pages of a provider: the redirect and the callback (OIDC Core §3.1).

The data of a sign-in travels in a cookie for the callback path: signed, bound to this browser, and
valid for 15 minutes. `state` identifies the cookie, and works once. A long authorization request is
stored in the database instead, because all cookies together have to fit into one header.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import flask
from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import clock, context, database
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.oidc import GitHubProvider, GoogleProvider, OidcProvider, WebProvider
from sso.config.upstream.provider import Provider
from sso.crypto import secrets as crypto_secrets
from sso.endpoints import page, upstream_sign_in
from sso.endpoints.upstream_sign_in import Attempt
from sso.extensions import db
from sso.flow.request import AuthorizationRequest
from sso.i18n import languages
from sso.mfa import policy
from sso.process import program
from sso.ratelimit import limiting
from sso.store import identities, redemption
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused, UpstreamUnavailable
from sso.web import errors, pending_request, routing
from sso.web.pending_request import PendingRequest

if TYPE_CHECKING:
    from sso.upstream import oidc as upstream_oidc
else:
    upstream_oidc = program.late_module("sso.upstream.oidc")  # 5 MB, with `requests`


FLOW_LIFETIME = 900  # seconds, to sign in there
_PURPOSE, _USED = "upstream sign-in", "upstream state"
_SLOTS = 3  # sign-ins at once, in several tabs; a cookie each
_SLOT = "upstream_slot"
_MAX_RESUME = 1000  # characters of a pending request in the cookie
_MAX_COOKIE = 2400  # bytes: three of them, and the session's, fit into a header of 8190


@dataclass(frozen=True)
class Flow:
    """The data for the callback. `resume`: the pending request; empty if it is stored."""

    state: str
    provider: str
    nonce: str
    verifier: str
    began_at: int
    resume: str | None
    remember: bool
    again: bool
    max_age: int | None
    user_id: str | None
    back: dict[str, str]


def keep_flow(response: Response, flow: Flow, pending: PendingRequest | None) -> None:
    """Store a flow in this browser. Commits. Raises `ValueError` if it is too long."""
    resume = flow.resume or ""
    is_long = pending is not None and len(resume) > _MAX_RESUME
    value = policy.sign_value(astuple(replace(flow, resume="") if is_long else flow), _PURPOSE)
    if len(value) > _MAX_COOKIE:
        raise ValueError("the request is too long to keep")
    if pending and is_long:
        limiting.spend(
            limiting.PUSHED_BY_ANYONE, ""
        )  # a row until it is purged, like a pushed request
        expires_at = clock.now() + timedelta(seconds=FLOW_LIFETIME)
        identities.add_waiting(_digest(flow), pending.parameters["client_id"], resume, expires_at)
        db.session.commit()
    slot = flask.session[_SLOT] = (int(flask.session.get(_SLOT, 0)) + 1) % _SLOTS
    _set_cookie(response, slot, value)


def find_flow(provider: WebProvider) -> tuple[int, Flow] | None:
    """Return the flow of a response, and the slot of its cookie."""
    state = request.args.get("state", "")
    for slot in range(_SLOTS):
        value = request.cookies.get(_cookie_name(slot), "")
        signed = policy.verify_value(value, _PURPOSE, FLOW_LIFETIME)
        flow = Flow(*signed[0]) if signed else None
        if flow and flow.provider == provider.id and crypto_secrets.is_equal(flow.state, state):
            return slot, replace(flow, resume=_stored(flow)) if flow.resume == "" else flow
    return None


def forget_flow(response: Response, slot: int) -> None:
    """Delete the cookie of a flow after the callback."""
    _set_cookie(response, slot, "")


def is_first_use(flow: Flow) -> bool:
    """Mark the state as used, and commit; return False if it already was."""
    now = clock.now()
    expires_at = now + timedelta(seconds=FLOW_LIFETIME)
    use = redemption.SingleUse(_USED, flow.state, flow.state, expires_at)
    first = redemption.use_once(database.session_connection(), use, now=now)
    db.session.commit()
    return first


def _stored(flow: Flow) -> str:
    """Return the stored pending request; empty if it is gone."""
    waiting = identities.find_waiting(_digest(flow))
    return waiting.resume if waiting else ""


def _digest(flow: Flow) -> str:
    return crypto_secrets.digest(f"{_PURPOSE} {flow.state}")


def _cookie_name(slot: int) -> str:
    return f"{'__Secure-' if context.settings().is_https else ''}sso_upstream_{slot}"


def _set_cookie(response: Response, slot: int, value: str) -> None:
    """Set the cookie, with SameSite=Lax because the provider's site redirects back."""
    settings = context.settings()
    more: dict[str, Any] = {"secure": settings.is_https, "httponly": True, "samesite": "Lax"}
    path = f"{settings.base_path}/sign-in/callback"
    response.set_cookie(
        _cookie_name(slot), value, max_age=FLOW_LIFETIME if value else 0, path=path, **more
    )


# There is nothing to guess, but each failure calls the provider, and adds an audit event.
LIMIT = replace(limiting.PASSKEY, name="upstream")


def start_at_provider(attempt: Attempt) -> Response:
    """Redirect the browser to the provider. Commits."""
    provider = attempt.provider
    assert isinstance(provider, WebProvider)
    db.session.commit()  # no transaction waits for the provider
    names = ("back", "another", "token", "at")
    flow = Flow(
        state=secrets.token_urlsafe(24),
        provider=provider.id,
        nonce=secrets.token_urlsafe(24),
        verifier=secrets.token_urlsafe(48),
        began_at=clock.timestamp(attempt.began_at),
        resume=pending_request.sign(attempt.pending) if attempt.pending else None,
        remember=attempt.remember,
        again=attempt.again,
        max_age=attempt.max_age,
        user_id=attempt.user_id,
        back={name: request.args[name] for name in names if request.args.get(name)},
    )
    try:
        url = _url(provider, flow, _parameters(attempt))
    except UpstreamUnavailable as error:
        return upstream_sign_in.unavailable(provider, error)
    response = redirect(url, 303)
    try:
        keep_flow(response, flow, attempt.pending)
    except ValueError as error:
        return upstream_sign_in.refused(provider, error)
    return response


def _parameters(attempt: Attempt) -> dict[str, str]:
    """Return the parameters that are passed on to the provider (OIDC Core §3.1.2.1)."""
    parameters: dict[str, str] = {}
    request, provider = attempt.request, attempt.provider
    is_google = isinstance(provider, GoogleProvider)
    if attempt.again:
        parameters["prompt"] = "select_account" if is_google else "login"
        parameters["max_age"] = "0"
    elif request and "select_account" in request.prompt:
        parameters["prompt"] = "select_account"
    if attempt.max_age is not None and not attempt.again:
        parameters["max_age"] = str(attempt.max_age)
    if attempt.hint:
        parameters["login_hint"] = attempt.hint
    if isinstance(provider, OidcProvider):
        parameters["ui_locales"] = languages.language()
        wants_two = request and (request.needs_two_factors or request.prefers_two_factors)
        if wants_two and provider.two_factor_acr:
            parameters["acr_values"] = " ".join(provider.two_factor_acr)
    return parameters


def _url(provider: WebProvider, flow: Flow, more: dict[str, str]) -> str:
    at = _redirect_uri(provider)
    if isinstance(provider, GitHubProvider):
        client = upstream_oidc.github_client(provider)
        return client.authorization_url(at, flow.state, flow.verifier, more)
    assert isinstance(provider, OidcProvider)
    oidc = upstream_oidc.oidc_client(provider)
    return oidc.authorization_url(at, flow.state, flow.nonce, flow.verifier, more)


def _redirect_uri(provider: WebProvider) -> str:
    """Return the redirect URI, distinct for each provider against mix-up (RFC 9700 §4.4.2)."""
    return f"{context.settings().base_url}/sign-in/callback/{provider.id}"


def callback(provider_id: str) -> Response:
    """Complete the sign-in after the provider has redirected back."""
    provider = context.upstreams().find(provider_id)
    if not isinstance(provider, WebProvider):
        abort(404)
    begun = find_flow(provider)
    if begun is None:
        return _stale()
    slot, flow = begun
    try:
        response = _complete(provider, flow)
    except page.Answered as answered:
        response = answered.response
    forget_flow(response, slot)
    return response


def _complete(provider: WebProvider, flow: Flow) -> Response:
    if not is_first_use(flow):
        return _stale()
    pending = pending_request.verify(flow.resume) if flow.resume is not None else None
    if flow.resume is not None and pending is None:
        return _stale()
    attempt = Attempt(
        provider,
        pending,
        clock.now() - timedelta(seconds=clock.timestamp(clock.now()) - flow.began_at),
        remember=flow.remember,
        again=flow.again,
        user_id=flow.user_id,
        max_age=flow.max_age,
    )
    page.restore({**flow.back, **({"resume": flow.resume} if flow.resume else {})})
    limit_attempt = routing.enter("")
    try:
        return upstream_sign_in.finish(attempt, _identity(provider, flow))
    except UpstreamUnavailable as error:
        return upstream_sign_in.unavailable(provider, error)
    except UpstreamRefused as error:
        limit_attempt.failed()
        return upstream_sign_in.refused(provider, error)


def _identity(provider: WebProvider, flow: Flow) -> UpstreamIdentity:
    """Return the identity in a response. Raises `UpstreamUnavailable` and `UpstreamRefused`."""
    answer = {name: request.args.getlist(name) for name in ("code", "iss", "error")}
    if any(len(values) > 1 for values in answer.values()):
        raise UpstreamRefused("a parameter of the answer is repeated")
    code, issuer, error = (values[0] if values else None for values in answer.values())
    redirect_uri = _redirect_uri(provider)
    if isinstance(provider, GitHubProvider):
        _check_answer(code, error)
        return upstream_oidc.github_client(provider).complete(
            redirect_uri, code or "", flow.verifier
        )
    assert isinstance(provider, OidcProvider)
    client = upstream_oidc.oidc_client(provider)
    metadata = client.metadata()
    # RFC 9207 §2.4: also in errors. Microsoft's metadata names no real issuer.
    if issuer is None and metadata.names_issuer:
        raise UpstreamRefused("the answer does not say which server it is of")
    if issuer is not None and issuer != metadata.issuer:
        raise UpstreamRefused("the answer is that of another server")
    _check_answer(code, error)
    return client.complete(redirect_uri, code or "", flow.verifier, flow.nonce)


def _check_answer(code: str | None, error: str | None) -> None:
    if error or not code or len(code) > 4000:
        raise UpstreamRefused(f"it answered {error or 'without a code'}"[:100])


def _stale() -> Response:
    """Render the page for a flow that is used, too old, or of another browser."""
    return errors.page(
        gettext("This sign-in was begun in another browser, has expired, or is complete."),
        title=gettext("Please start again"),
        link=(gettext("Back to the sign-in page"), url_for("pages.sign_in")),
    )


# The functions that begin an attempt, by the class of the provider.
HANDLERS: Mapping[type[Provider], Callable[[Attempt], Response]] = {
    LdapProvider: upstream_sign_in.start_at_directory,
    WebProvider: start_at_provider,
}


def start(
    provider: Provider,
    pending: PendingRequest | None,
    *,
    remember: bool = False,
    again: bool = False,
    hint: str | None = None,
    user_id: str | None = None,
    parameters: AuthorizationRequest | None = None,
) -> Response:
    """Redirect the browser to the provider, or show the page for a directory's password."""
    handler = next(start_at for kind in type(provider).__mro__ if (start_at := HANDLERS.get(kind)))
    return handler(
        Attempt(
            provider,
            pending,
            clock.now(),
            remember=remember,
            again=again or (parameters is not None and "login" in parameters.prompt),
            user_id=user_id,
            hint=hint,
            max_age=parameters.max_age if parameters else None,
            request=parameters,
        )
    )
