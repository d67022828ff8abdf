"""RP-Initiated Logout 1.0: a client asks to sign the person out."""

from urllib.parse import urlsplit

from flask import make_response, redirect, render_template, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.sign_out import signed_out
from sso.extensions import db
from sso.models import Client
from sso.oauth import authorization_server
from sso.oauth.end_session import PARAMETERS, LogoutError, LogoutRequest, note_refusal, read
from sso.store.sessions import CurrentSession
from sso.web import browser_session, errors, i18n, parameters


def end_session() -> Response:
    """Sign out at once by a hint of this very session; otherwise ask the person first."""
    decision = _decision()
    if request.method == "POST" and decision is None:
        # As at the authorization endpoint: only in a GET do the browser's cookies count.
        return authorize.as_get("pages.end_session")
    asked = _read()
    visit = browser_session.current_session()
    if visit is None:
        return _nobody(asked)
    if decision == "stay":
        return redirect(url_for("pages.account"), 303)
    if not asked.names_session and decision != "sign_out":
        return _ask(visit, asked)
    browser_session.sign_out("rp_initiated_logout")
    db.session.commit()
    return _go_on(asked)


def _decision() -> str | None:
    """The button of our own page; any other post is a request like a GET."""
    request.get_data(cache=True)  # a form that is parsed first would leave nothing to read
    if request.method != "POST" or "decision" not in request.form:
        return None
    return request.form["decision"] if DecisionForm().validate() else None


def _read() -> LogoutRequest:
    try:
        values = parameters.single(parameters.query_pairs(request), PARAMETERS)
        parameters.check_clean(values, [name for name in PARAMETERS if name != "state"])
    except parameters.ParameterFault as fault:
        note_refusal(Event.END_SESSION_REFUSED, str(fault))
        return LogoutRequest(error=LogoutError(str(fault)))
    i18n.ask_for(values.get("ui_locales"))
    return read(authorization_server(), values)


def _go_on(asked: LogoutRequest) -> Response:
    if asked.redirect_uri:
        return redirect(asked.redirect_uri, 303)
    return signed_out(_way_back(asked.client))


def _nobody(asked: LogoutRequest) -> Response:
    """Nobody is signed in on this browser: there is nothing to end, and nobody to ask."""
    if asked.error is None:
        return _go_on(asked)
    return errors.page(
        asked.error.description,
        title=gettext("You are signed out"),
        mend=asked.error.hint,
        error="invalid_request",
        way_on=_way_back(asked.client),
        for_developers=True,
        line=asked.error.line,
    )


def _ask(visit: CurrentSession, asked: LogoutRequest) -> Response:
    error_id = None
    if asked.error:
        error_id = errors.report(
            asked.error.line or asked.error.description, 400, "invalid_request"
        )
    html = render_template(
        "sign_out.html",
        form=DecisionForm(formdata=None),
        client_name=asked.client.name if asked.client else None,
        user_name=visit.user.name,
        user_email=visit.user.email,
        error=asked.error,
        error_id=error_id,
        back=_way_back(asked.client) if asked.error else None,
    )
    response = make_response(html)
    response.status_code = 400 if asked.error else 200
    return response


def _way_back(client: Client | None) -> tuple[str, str] | None:
    """A link to the site of a client, as far as its registered addresses tell where that is."""
    if client is None:
        return None
    registered = client.client_metadata.get("post_logout_redirect_uris") or []
    for uri in (*registered, *client.redirect_uris):
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https"):
            words = gettext("Back to %(client)s", client=client.name)
            return words, f"{parts.scheme}://{parts.netloc}/"
    return None
