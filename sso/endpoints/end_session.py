"""RP-Initiated Logout 1.0."""

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from sso import browser_session, errors, languages, parameters, refusals
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.sign_out import signed_out
from sso.extensions import db
from sso.models import Client
from sso.oauth import authorization_server
from sso.oauth.end_session import PARAMETERS, is_of_this_session
from sso.oauth.request import ProtocolRequest
from sso.store.sessions import Visit


def end_session() -> Response:
    """End the session a client asks about; ask the user unless the hint names this very one."""
    server = authorization_server()
    decided = request.method == "POST" and "decision" in request.form
    if request.method == "POST" and not decided:
        # As at the authorization endpoint: only in a GET do the browser's cookies count.
        return authorize.as_get("sso.end_session")
    try:
        values = parameters.single(parameters.query_pairs(request), PARAMETERS)
        parameters.check_clean(values, [name for name in PARAMETERS if name != "state"])
    except parameters.ParameterFault as fault:
        event = "end_session_refused"
        words = str(fault)
        refusals.note(event, budget=event, error="invalid_request", description=words)
        return errors.page(words, error="invalid_request", for_developers=True)
    languages.ask_for(values.get("ui_locales"))
    protocol_request = ProtocolRequest(values)
    try:
        found = server.validate_endpoint_request("end_session", protocol_request)
    except OAuth2Error as error:
        return server.handle_error_response(protocol_request, error)
    visit, form = browser_session.current_visit(), DecisionForm()
    if visit is not None and not is_of_this_session(found):
        confirmed = decided and form.validate() and request.form["decision"] == "sign_out"
        if not confirmed:
            return _ask(form, visit, found.client, stayed=decided)
    browser_session.sign_out("rp_initiated_logout")
    db.session.commit()
    if found.redirect_uri:
        return redirect(found.redirect_uri, 303)
    return signed_out()


def _ask(form: DecisionForm, visit: Visit, client: Client | None, stayed: bool) -> Response:
    if stayed and form.validate():
        return redirect(url_for("sso.account"), 303)
    html = render_template(
        "sign_out.html",
        form=form,
        client_name=client.name if client else None,
        user_name=visit.user.name,
        user_email=visit.user.email,
    )
    return make_response(html)
