"""Signing in by a passkey alone; the sign-in page posts here."""

from flask import redirect, request
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import after_sign_in, step
from sso.extensions import db
from sso.mfa import passkeys, pending_mfa
from sso.ratelimit import limiting
from sso.web import browser_session


def passkey_sign_in() -> Response:
    """Check the passkey and begin the session; else back to the sign-in page."""
    waiting = authorize.read_waiting()
    if "resume" in request.args and waiting is None:
        return authorize.stale()
    form = request.form
    if request.method == "POST" and DecisionForm().validate():
        attempt = limiting.enter(limiting.PASSKEY, "")
        found = passkeys.accept_sign_in(form.get("credential", ""), form.get("challenge", ""))
        if found:
            user, shown = found
            pending_mfa.finish(user)
            remember = form.get("remember") == "1"
            signed_in_at = browser_session.begin(user, shown, remember).auth_time
            db.session.commit()
            return after_sign_in(waiting, signed_in_at)
        db.session.rollback()
        audit.event(Event.SIGN_IN_FAILED, method="passkey")
        attempt.failed()
    return redirect(step("pages.sign_in", problem="passkey"), 303)
