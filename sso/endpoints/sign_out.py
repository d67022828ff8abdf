"""Signing out, asked for by the user."""

from flask import make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from sso.endpoints.forms import DecisionForm
from sso.extensions import db
from sso.web import browser_session


def sign_out() -> Response:
    """Ask, then end the session of this browser."""
    visit = browser_session.current_session()
    if visit is None:
        return signed_out()
    form = DecisionForm()
    if request.method == "POST" and form.validate():
        if request.form.get("decision") == "stay":
            return redirect(url_for("pages.account"), 303)
        browser_session.sign_out()
        db.session.commit()
        return signed_out()
    html = render_template(
        "sign_out.html",
        form=form,
        client_name=None,
        user_name=visit.user.name,
        user_email=visit.user.email,
    )
    return make_response(html)


def signed_out(back: tuple[str, str] | None = None) -> Response:
    """The page after signing out. `back`: the text and the URL of a link to the application."""
    html = render_template("signed_out.html", back=back, sign_in_url=url_for("pages.sign_in"))
    return make_response(html)
