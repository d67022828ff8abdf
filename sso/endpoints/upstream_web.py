"""Sign-in at the pages of a provider: the way there, and the callback (OIDC Core §3.1)."""

import secrets
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import clock, context
from sso.config.upstream.oidc import GitHubProvider, GoogleProvider, OidcProvider, WebProvider
from sso.endpoints import page, upstream_flow, upstream_sign_in
from sso.endpoints.upstream_flow import Flow
from sso.endpoints.upstream_sign_in import Attempt
from sso.extensions import db
from sso.i18n import languages
from sso.process import program
from sso.ratelimit import limiting
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused, UpstreamUnavailable
from sso.web import errors, pending_request, routing

if TYPE_CHECKING:
    from sso.upstream import oidc as upstream_oidc
else:
    upstream_oidc = program.late_module("sso.upstream.oidc")  # 5 MB, with `requests`

# Nothing to guess, but each failure asks the provider, and is a row in the audit trail.
LIMIT = replace(limiting.PASSKEY, name="upstream")


def start(attempt: Attempt) -> Response:
    """Send the browser to the provider. Commits."""
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
        upstream_flow.keep(response, flow, attempt.pending)
    except ValueError as error:
        return upstream_sign_in.refused(provider, error)
    return response


def _parameters(attempt: Attempt) -> dict[str, str]:
    """What is passed on of the application's request (OIDC Core §3.1.2.1)."""
    found: dict[str, str] = {}
    asked, provider = attempt.asked, attempt.provider
    is_google = isinstance(provider, GoogleProvider)
    if attempt.again:
        found["prompt"] = "select_account" if is_google else "login"
        found["max_age"] = "0"
    elif asked and "select_account" in asked.prompt:
        found["prompt"] = "select_account"
    if attempt.max_age is not None and not attempt.again:
        found["max_age"] = str(attempt.max_age)
    if attempt.hint:
        found["login_hint"] = attempt.hint
    if isinstance(provider, OidcProvider):
        found["ui_locales"] = languages.language()
        wants_two = asked and (asked.needs_two_factors or asked.prefers_two_factors)
        if wants_two and provider.two_factor_acr:
            found["acr_values"] = " ".join(provider.two_factor_acr)
    return found


def _url(provider: WebProvider, flow: Flow, more: dict[str, str]) -> str:
    at = _redirect_uri(provider)
    if isinstance(provider, GitHubProvider):
        client = upstream_oidc.github_client(provider)
        return client.authorization_url(at, flow.state, flow.verifier, more)
    assert isinstance(provider, OidcProvider)
    oidc = upstream_oidc.oidc_client(provider)
    return oidc.authorization_url(at, flow.state, flow.nonce, flow.verifier, more)


def _redirect_uri(provider: WebProvider) -> str:
    """One for each provider, so that no other one's answer is taken for its (RFC 9700 §4.4.2)."""
    return f"{context.settings().base_url}/sign-in/callback/{provider.id}"


def callback(provider_id: str) -> Response:
    """Where a provider sends people back to."""
    provider = context.upstreams().find(provider_id)
    if not isinstance(provider, WebProvider):
        abort(404)
    found = upstream_flow.find(provider)
    if found is None:
        return _stale()
    slot, flow = found
    try:
        response = _complete(provider, flow)
    except page.Answered as answered:
        response = answered.response
    upstream_flow.forget(response, slot)
    return response


def _complete(provider: WebProvider, flow: Flow) -> Response:
    if not upstream_flow.is_first(flow):
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
    tried = routing.enter("")
    try:
        return upstream_sign_in.finish(attempt, _identity(provider, flow))
    except UpstreamUnavailable as error:
        return upstream_sign_in.unavailable(provider, error)
    except UpstreamRefused as error:
        tried.failed()
        return upstream_sign_in.refused(provider, error)


def _identity(provider: WebProvider, flow: Flow) -> UpstreamIdentity:
    """Who the answer is about. Raises `UpstreamUnavailable` and `UpstreamRefused`."""
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
    """Used, too old, or begun in another browser."""
    return errors.page(
        gettext("This sign-in was begun in another browser, has expired, or is complete."),
        title=gettext("Please start again"),
        link=(gettext("Back to the sign-in page"), url_for("pages.sign_in")),
    )
