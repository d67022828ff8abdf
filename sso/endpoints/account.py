"""The signed-in user's own page."""

from flask import make_response, redirect, render_template, url_for
from werkzeug.wrappers import Response

from sso import browser_session
from sso.extensions import db
from sso.flow import scopes

_SHOWN = ("profile", "address", "phone")


def account() -> Response:
    """What this server knows of the user, and the way out."""
    visit = browser_session.current_visit()
    if visit is None:
        return redirect(url_for("sso.sign_in"), 303)
    browser_session.touch(visit)
    db.session.commit()
    user = visit.user
    claims = scopes.values(user, scopes.claims_of(_SHOWN))
    html = render_template(
        "account.html",
        user_name=user.name,
        user_email=user.email,
        email_verified=user.email_verified,
        claims=[
            (name.replace("_", " ").capitalize(), value)
            for name, value in claims.items()
            if name not in ("name", "updated_at")
        ],
        groups=user.groups,
        sign_out_url=url_for("sso.sign_out"),
    )
    return make_response(html)
