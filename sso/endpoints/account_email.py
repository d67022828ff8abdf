"""The signed-in user's own address: another one, or the confirmation of this one once more."""

from flask import make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.crypto import passwords
from sso.endpoints.forms import DecisionForm
from sso.endpoints.mail_forms import ChangeEmailForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.ratelimit import limiting
from sso.services import credentials
from sso.store.sessions import CurrentSession
from sso.web import browser_session

_DONE = {
    "asked": N_(
        "A mail is on its way to the new address. "
        "It counts as soon as you press the button behind the link in it."
    ),
    "again": N_("A mail is on its way to your address."),
}


def account_email() -> Response:
    """Ask for the new address and the password; the mail to the new address decides."""
    visit = browser_session.current_session()
    if visit is None:
        return redirect(url_for("pages.sign_in"), 303)
    form, done = ChangeEmailForm(), None
    if request.method == "POST":
        if request.form.get("action") == "verify_again":
            done = _verify_again(visit)
        elif policy.lacks_second_factor(visit):
            done = "confirm"
        elif form.validate():
            done = _change(visit, form)
        if done == "confirm":
            return redirect(url_for("pages.second_factor", back="email"), 303)
        if done:
            db.session.commit()
            return redirect(url_for("pages.account_email", done=done), 303)
    html = render_template(
        "account_email.html",
        form=form,
        decision=DecisionForm(formdata=None),
        user_email=visit.user.email,
        email_verified=visit.user.email_verified,
        confirm_url=url_for("pages.second_factor", back="email")
        if policy.lacks_second_factor(visit)
        else None,
        done=_DONE.get(request.args.get("done", "")),
        account_url=url_for("pages.account"),
    )
    return make_response(html)


def _verify_again(visit: CurrentSession) -> str:
    limiting.spend(limiting.VERIFICATION, visit.user.email)
    if not visit.user.email_verified:
        credentials.request_verification(audit.USER, visit.user)
    return "again"


def _change(visit: CurrentSession, form: ChangeEmailForm) -> str | None:
    user, address = visit.user, form.email.data or ""
    if address == user.email:
        form.email.errors = [N_("This is your address already.")]
        return None
    attempt = limiting.enter(limiting.PASSWORD_CHECK, user.email)
    db.session.commit()  # the transaction must not wait for the check
    if not passwords.verify(form.password.data or "", user.password_hash, str(user.id)):
        audit.event(Event.EMAIL_CHANGE_FAILED, user=user.id, reason="password")
        attempt.failed()
        form.password.errors = [N_("The password is not right.")]
        return None
    attempt.passed()
    if policy.lock(visit) is None or policy.lacks_second_factor(visit):
        return "ended"  # meanwhile; the way leads to the sign-in page, or back to this one
    limiting.spend(limiting.VERIFICATION, address)
    credentials.request_email_change(audit.USER, user, address)
    return "asked"
