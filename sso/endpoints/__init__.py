"""HTTP: one file an address. This file is the table address -> view."""

from typing import Any

from flask import Blueprint, Flask, redirect, url_for
from werkzeug.wrappers import Response

from sso import context
from sso.endpoints import (
    account,
    account_email,
    activity,
    authorize,
    consent,
    discovery,
    end_session,
    factor_code,
    factor_link,
    factors,
    forgotten_password,
    health,
    introspect,
    jwks,
    new_password,
    passkey_sign_in,
    revoke,
    second_factor,
    sign_in,
    sign_out,
    sign_up,
    token,
    totp_setup,
    userinfo,
    verify_email,
)
from sso.web.extensions import csrf

BOTH = ("GET", "POST")

# Addresses below the base address.
ROUTES: tuple[tuple[str, str, Any, tuple[str, ...]], ...] = (
    ("/oauth2/authorize", "authorize", authorize.authorize, BOTH),
    ("/oauth2/token", "token", token.token, ("POST",)),
    ("/oauth2/userinfo", "userinfo", userinfo.userinfo, BOTH),
    ("/oauth2/jwks", "jwks", jwks.jwks, ("GET",)),
    ("/oauth2/revoke", "revoke", revoke.revoke, ("POST",)),
    ("/oauth2/introspect", "introspect", introspect.introspect, ("POST",)),
    ("/oauth2/end-session", "end_session", end_session.end_session, BOTH),
    ("/.well-known/openid-configuration", "discovery", discovery.discovery, ("GET",)),
    ("/sign-in", "sign_in", sign_in.sign_in, BOTH),
    ("/sign-in/passkey", "passkey_sign_in", passkey_sign_in.passkey_sign_in, BOTH),
    ("/second-factor", "second_factor", second_factor.second_factor, BOTH),
    ("/sign-out", "sign_out", sign_out.sign_out, BOTH),
    ("/consent", "consent", consent.consent, BOTH),
    ("/account", "account", account.account, BOTH),
    ("/account/email", "account_email", account_email.account_email, BOTH),
    ("/forgotten-password", "forgotten_password", forgotten_password.forgotten_password, BOTH),
    ("/new-password", "new_password", new_password.new_password, BOTH),
    ("/verify-email", "verify_email", verify_email.verify_email, BOTH),
    ("/sign-up", "sign_up", sign_up.sign_up, BOTH),
    ("/complete-sign-up", "complete_sign_up", sign_up.complete_sign_up, BOTH),
    ("/account/activity", "activity", activity.activity, ("GET",)),
    ("/account/factors", "factors", factors.factors, BOTH),
    ("/account/factors/code", "factor_code", factor_code.factor_code, BOTH),
    ("/account/factors/link", "factor_link", factor_link.factor_link, BOTH),
    ("/account/factors/totp", "totp_setup", totp_setup.totp_setup, BOTH),
)

# Called by other sites and by backends: they prove themselves otherwise than by a CSRF token.
# End-session checks the token itself where it asks the user.
WITHOUT_CSRF = (
    authorize.authorize, token.token, userinfo.userinfo, revoke.revoke, introspect.introspect,
    end_session.end_session,
)  # fmt: skip


def home() -> Response:
    """On to the account."""
    return redirect(url_for("sso.account"), 303)


def init_app(app: Flask) -> None:
    """Register every address."""
    with app.app_context():
        base_path = context.settings().base_path
    below = Blueprint("sso", __name__, url_prefix=base_path or None)
    for path, name, view, methods in ROUTES:
        below.add_url_rule(path, name, view, methods=methods)
    # Who types the host's name wants the account; the longer form is what a proxy may make of it.
    below.add_url_rule("/", "home", home)
    app.register_blueprint(below)

    root = Blueprint("root", __name__)
    # RFC 8414 §3.1: the well-known part stands before the issuer's path.
    root.add_url_rule(
        f"/.well-known/oauth-authorization-server{base_path}", "metadata", discovery.discovery
    )
    if base_path:
        root.add_url_rule("/", "home", home)
    root.add_url_rule("/healthz", "healthz", health.healthz)
    root.add_url_rule("/readyz", "readyz", health.readyz)
    app.register_blueprint(root)

    for view in WITHOUT_CSRF:
        csrf.exempt(view)
