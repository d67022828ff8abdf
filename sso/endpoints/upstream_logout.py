"""Sign-out between this server and its providers, in both directions."""

from datetime import timedelta
from typing import TYPE_CHECKING

from flask import Response as FlaskResponse
from flask import abort, request
from werkzeug.wrappers import Response

from sso import audit, clock, context, database
from sso.config.upstream.oidc import OidcProvider
from sso.config.urls import add_parameters
from sso.endpoints import browser_session, page
from sso.extensions import db
from sso.mfa import policy
from sso.process import program
from sso.services import identities as linking
from sso.store import identities, redemption
from sso.upstream.identity import UpstreamRefused, UpstreamUnavailable
from sso.web import errors, parameters

if TYPE_CHECKING:
    from sso.upstream import id_tokens, oidc
else:
    oidc = program.late_module("sso.upstream.oidc")  # as in `upstream_web`
    id_tokens = program.late_module("sso.upstream.id_tokens")

_PURPOSE, _USED = "after sign-out", "upstream logout token"
_LIFETIME = 600  # seconds, to sign out there


def backchannel_logout(provider_id: str) -> Response:
    """Ends the sessions that a provider has begun, on its word (OIDC Back-Channel Logout)."""
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
    is_first = redemption.use_once(
        database.session_connection(),
        _USED,
        provider.id,
        claims["jti"],
        now=now,
        expires_at=now + timedelta(seconds=id_tokens.MAX_AGE + 2 * id_tokens.SKEW),
    )
    if not is_first:
        db.session.rollback()
        return errors.as_json("invalid_request", "The logout token was used before.", 400)
    linking.end_sessions(audit.SYSTEM, claims["iss"], claims.get("sub"), claims.get("sid"))
    db.session.commit()
    return FlaskResponse(status=200, headers={"Cache-Control": "no-store"})


def sign_out(reason: str, then: str | None = None) -> Response | None:
    """End the session of this browser; the answer, if it leads to the provider's sign-out.

    `then`: where the way back from there leads on to. Commits.
    """
    current = browser_session.current_session()
    found = identities.last_of_session(current.session.id) if current else None
    browser_session.sign_out(reason)
    db.session.commit()
    provider = context.upstreams().find(found[1].provider) if found else None
    if not (found and isinstance(provider, OidcProvider) and provider.sign_out_upstream):
        return None
    try:
        endpoint = oidc.oidc_client(provider).metadata().end_session_endpoint
    except UpstreamUnavailable:
        return None
    if endpoint is None:
        return None
    hint = linking.decrypted_token(found[0].sealed_id_token)
    url = add_parameters(
        endpoint,
        [
            *([("id_token_hint", hint)] if hint else []),
            ("client_id", provider.client_id),
            ("post_logout_redirect_uri", f"{context.settings().base_url}/sign-out"),
            ("state", policy.sign_value(then, _PURPOSE)),
        ],
    )
    # No redirect: the policy of an application whose form led here may not allow to go on there
    # (Content Security Policy, form-action).
    return page.render("signing_out.html", provider=provider, url=url)


def way_on() -> str | None:
    """Where to go on after a provider's sign-out, if that is what led here."""
    found = policy.verify_value(request.args.get("state", ""), _PURPOSE, _LIFETIME)
    return found[0] if found else None
