"""Setting up an authenticator app: a QR code, and a code from the app to prove that it works."""

from flask import make_response, redirect, render_template, request
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso.endpoints import authorize
from sso.endpoints.factors import APP_NAME, added
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import confirm_first, step
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy, proof, signed_values, totp
from sso.store import factors as store
from sso.store.sessions import CurrentSession
from sso.web import browser_session

LIFETIME = int(policy.SETUP.total_seconds())
WRONG = N_("The code is not right. Check that the phone's clock is right, and try the next code.")


def totp_setup() -> Response:
    """Show a new secret; nothing is stored until a code of it came back."""
    visit = browser_session.current_session()
    if visit is None:
        return confirm_first()
    if "resume" in request.args and authorize.read_waiting() is None:
        return authorize.stale()
    known = store.of_user(visit.user.id)
    if known.totp is not None:
        return redirect(step("pages.factors"), 303)
    if request.method == "POST" and DecisionForm().validate():
        # The page was handed out to a fresh sign-in of this very session.
        found = signed_values.verify(request.form.get("setup", ""), _purpose(visit), LIFETIME)
        if found is None:
            return redirect(step("pages.totp_setup"), 303)
        locked = policy.lock(visit)
        if locked is None:
            return confirm_first()
        visit, known = locked, store.of_user(locked.user.id)
        if known.totp is not None:  # from another tab at the same instant
            return redirect(step("pages.factors"), 303)
        if not policy.may_finish(visit, known):
            return confirm_first()
        try:
            right = totp.enrol(visit.user.id, found[0], request.form.get("code", ""))
        except IntegrityError:  # by a version that takes no lock
            db.session.rollback()
            return redirect(step("pages.factors"), 303)
        return (
            added(visit, known, "totp", APP_NAME, proof.OTP)
            if right
            else _page(visit, found[0], WRONG)
        )
    if policy.asks_for_code(visit, known):
        return redirect(step("pages.factor_code"), 303)
    if not policy.may_change(visit, known):
        return confirm_first()
    return _page(visit, totp.new_secret(), None)


def _page(visit: CurrentSession, secret: str, error: str | None) -> Response:
    html = render_template(
        "totp_setup.html",
        form=DecisionForm(formdata=None),
        qr_code=totp.qr_code(totp.address(secret, visit.user)),
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        setup=signed_values.sign(secret, _purpose(visit)),
        error=error,
        factors_url=step("pages.factors"),
    )
    return make_response(html)


def _purpose(visit: CurrentSession) -> str:
    return f"authenticator app of {visit.user.id} set up in {visit.session.id}"
