"""Signing out: by the user, by a client (RP-Initiated Logout 1.0), or through a provider."""

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Response as FlaskResponse
from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, clock, context, database
from sso.audit.events import Event
from sso.config.upstream.oidc import OidcProvider
from sso.config.urls import add_parameters
from sso.endpoints import browser_session, page
from sso.endpoints.forms import SignOutForm
from sso.extensions import db
from sso.i18n import languages
from sso.mfa import policy
from sso.models import Identity, UpstreamSession
from sso.oauth import authorization_server
from sso.oauth import response as oauth_response
from sso.oauth.end_session import PARAMETERS, LogoutRequest, note_refusal, read
from sso.oauth.response import ClientRedirect
from sso.process import program
from sso.services import agent_identity
from sso.services import identities as linking
from sso.store import identities, redemption, saml
from sso.store.clients import RegisteredClient
from sso.store.sessions import CurrentSession
from sso.upstream.identity import UpstreamRefused, UpstreamUnavailable
from sso.web import errors, parameters

if TYPE_CHECKING:
    from sso.oauth import saml_logout
    from sso.upstream import id_tokens, oidc
else:
    saml_logout = program.late_module("sso.oauth.saml_logout")  # 12 MB
    id_tokens = program.late_module("sso.upstream.id_tokens")
    oidc = program.late_module("sso.upstream.oidc")  # as in `upstream`


_PURPOSE, _USED = "after sign-out", "upstream logout token"
_LIFETIME = 600  # seconds, to sign out there


def backchannel_logout(provider_id: str) -> Response:
    """End the sessions that a provider's logout token names (OIDC Back-Channel Logout)."""
    provider = context.upstreams().find(provider_id)
    if not isinstance(provider, OidcProvider):
        abort(404)
    try:
        form = parameters.single(parameters.form_pairs(request), ["logout_token"])
        token = form.get("logout_token")
        claims = oidc.oidc_client(provider).verify_logout_token(token)
    except (UpstreamRefused, parameters.ParameterFault) as error:
        return errors.as_json("invalid_request", f"The logout token is refused: {error}.", 400)
    except UpstreamUnavailable:
        return errors.as_json("temporarily_unavailable", "The keys cannot be read now.", 503)
    now = clock.now()
    expires_at = now + timedelta(seconds=id_tokens.MAX_AGE + 2 * id_tokens.SKEW)
    use = redemption.SingleUse(_USED, provider.id, claims["jti"], expires_at)
    is_first = redemption.use_once(database.session_connection(), use, now=now)
    if not is_first:
        db.session.rollback()
        return errors.as_json("invalid_request", "The logout token was used before.", 400)
    linking.end_sessions(audit.SYSTEM, claims["iss"], claims.get("sub"), claims.get("sid"))
    db.session.commit()
    return FlaskResponse(status=200, headers={"Cache-Control": "no-store"})


def sign_out_upstream(
    reason: str, then: str | None = None, *, asking: str | None = None
) -> Response | None:
    """End the session of this browser; return the page that leads to the sign-out at service
    providers of SAML, and then at the provider.

    Returns `None` if there is no such sign-out. `then`: the URL after the return from there.
    `asking`: the service provider that began. Commits.
    """
    current = browser_session.current_session()
    identity = identities.last_of_session(current.session.id) if current else None
    saml_sessions = saml.live_sessions(current.session.id) if current else []
    browser_session.sign_out(reason)
    db.session.commit()
    upstream = _upstream_sign_out(identity, then)
    if current and any(told.client_id != asking for told in saml_sessions):
        last = upstream[1] if upstream else then or f"{context.settings().base_url}/sign-out"
        saml_logout.begin(saml_sessions, current.session.id, last, asking)
        url, name = saml_logout.next_url(database.session_connection())
        return page.render("signing_out.html", name=name or "", url=url) if name else _to(url)
    if upstream is None:
        return None
    # No redirect: the policy of an application whose form led here may forbid the provider's URL
    # (Content Security Policy, form-action).
    return page.render("signing_out.html", name=upstream[0], url=upstream[1])


def _upstream_sign_out(
    identity: tuple[UpstreamSession, Identity] | None, then: str | None
) -> tuple[str, str] | None:
    """Return the name of the provider that has signed this session in, and its sign-out URL."""
    provider = context.upstreams().find(identity[1].provider) if identity else None
    if not (identity and isinstance(provider, OidcProvider) and provider.sign_out_upstream):
        return None
    try:
        endpoint = oidc.oidc_client(provider).metadata().end_session_endpoint
    except UpstreamUnavailable:
        return None
    if endpoint is None:
        return None
    hint = linking.decrypted_token(identity[0].sealed_id_token)
    url = add_parameters(
        endpoint,
        [
            *([("id_token_hint", hint)] if hint else []),
            ("client_id", provider.client_id),
            ("post_logout_redirect_uri", f"{context.settings().base_url}/sign-out"),
            ("state", policy.sign_value(then, _PURPOSE)),
        ],
    )
    return provider.name, url


def asking_url(then: str) -> str:
    """Return the URL of the page that asks before the session ends; `then`: where it leads."""
    return url_for("pages.sign_out", state=policy.sign_value(then, _PURPOSE))


def next_url() -> str | None:
    """Return the next URL after the return from a provider's sign-out."""
    state = policy.verify_value(request.args.get("state", ""), _PURPOSE, _LIFETIME)
    return state[0] if state else None


def sign_out() -> Response:
    """Ask, then end the session of this browser."""
    current = browser_session.current_session()
    if current is None:
        uri = next_url()
        return _to(uri) if uri else _signed_out()
    form = SignOutForm()
    if not form.validate_on_submit():
        return page.render("sign_out.html", form=form, client_name=None, user=current.user)
    if form.decision.data == "stay":
        return redirect(url_for("pages.account"), 303)
    uri = next_url()
    return sign_out_upstream("sign_out", uri) or (_to(uri) if uri else _signed_out())


def _signed_out(back: tuple[str, str] | None = None) -> Response:
    """Render the page after signing out. `back`: text and URL of a link to the application."""
    return page.render("signed_out.html", back=back)


def end_session() -> Response:
    """Sign out for a client: at once with a hint of this session, otherwise after asking."""
    request.get_data(cache=True)  # before the form is parsed, which consumes the body
    form = SignOutForm()
    # The button of the server's own page; any other POST is a request like a GET.
    decision = form.decision.data
    if decision is not None and not form.validate():
        decision = None
    if request.method == "POST" and decision is None:
        # As at the authorization endpoint: browsers send the cookies only with a GET.
        return oauth_response.as_get(url_for("pages.end_session"))
    logout = _read()
    current = browser_session.current_session()
    if current is None:
        return _nobody(logout)
    if decision == "stay":
        return redirect(url_for("pages.account"), 303)
    if not logout.names_session and decision != "sign_out":
        return _ask(form, current, logout)
    return sign_out_upstream("rp_initiated_logout", logout.redirect_uri) or _go_on(logout)


def _read() -> LogoutRequest:
    try:
        values = parameters.single(parameters.query_pairs(request), PARAMETERS)
        parameters.check_clean(values, [name for name in PARAMETERS if name != "state"])
    except parameters.ParameterFault as error:
        note_refusal(Event.END_SESSION_REFUSED, str(error))
        return LogoutRequest(error=str(error))
    languages.ask_for(values.get("ui_locales"))
    return read(authorization_server(), values)


def _go_on(logout: LogoutRequest) -> Response:
    if logout.redirect_uri:
        return _to(logout.redirect_uri)
    return _signed_out(_way_back(logout.client))


def _to(uri: str) -> Response:
    return ClientRedirect(status=303, headers={"Location": uri})


def _nobody(logout: LogoutRequest) -> Response:
    """Answer a request without a session: there is nothing to end, and nobody to ask."""
    if logout.error is None:
        return _go_on(logout)
    return errors.page(
        _words(logout),
        title=gettext("You are signed out"),
        hint=logout.unregistered,
        error="invalid_request",
        detail=logout.error,
        client_name=agent_identity.title_of(logout.client) if logout.client else None,
        link=_way_back(logout.client),
    )


def _ask(form: SignOutForm, current: CurrentSession, logout: LogoutRequest) -> Response:
    if logout.error:
        errors.report(logout.error, 400, "invalid_request")
    return page.render(
        "sign_out.html",
        status=400 if logout.error else 200,
        form=form,
        client_name=agent_identity.title_of(logout.client) if logout.client else None,
        user=current.user,
        error=_words(logout) if logout.error else None,
        detail=_detail(logout),
        back=_way_back(logout.client) if logout.error else None,
    )


def _words(logout: LogoutRequest) -> str:
    """Return the error of a request for the user."""
    if logout.client and logout.unregistered:
        return str(
            gettext(
                "%(client)s wants to send you to an address that is not registered for it.",
                client=agent_identity.title_of(logout.client),
            )
        )
    return str(gettext("The application sent a request that is not valid."))


def _detail(logout: LogoutRequest) -> str | None:
    """Return the error for the developers of the application; logs omit the URI's query."""
    return (
        f"{logout.error} Received: {logout.unregistered}" if logout.unregistered else logout.error
    )


def _way_back(client: RegisteredClient | None) -> tuple[str, str] | None:
    """Return a link to the site of a client, if one of its registered URLs has one."""
    if client is None:
        return None
    registered = client.client_metadata.get("post_logout_redirect_uris") or []
    for uri in (*registered, *client.redirect_uris):
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https") and not client.policy_at(uri).ask_each_time:
            label = gettext("Back to %(client)s", client=agent_identity.title_of(client))
            return label, f"{parts.scheme}://{parts.netloc}/"
    return None
