"""The signed-in user's own address: another one, or the confirmation of this one once more."""

from flask import redirect, request, url_for
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import page
from sso.endpoints.mail_forms import ChangeEmailForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.ratelimit import limiting
from sso.services import credentials
from sso.store.sessions import CurrentSession

_DONE = {
    "asked": N_(
        "A mail is on its way to the new address. "
        "It counts as soon as you press the button behind the link in it."
    ),
    "again": N_("A mail is on its way to your address."),
}


@login_required  # type: ignore[untyped-decorator]  # Flask-Login has no types
def account_email() -> Response:
    """Ask for the new address and the password; the mail to the new address decides."""
    visit = page.signed_in()
    form, done = ChangeEmailForm(), None
    if request.method == "POST":
        if form.action.data == "verify_again":
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
    return page.render(
        "account_email.html",
        form=form,
        user=visit.user,
        lacks_second_factor=policy.lacks_second_factor(visit),
        done=_DONE.get(request.args.get("done", "")),
    )


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
    if not page.is_password_right(
        visit,
        form.password,
        N_("The password is not right."),
        Event.EMAIL_CHANGE_FAILED,
        "password",
    ):
        return None
    if policy.lock(visit) is None or policy.lacks_second_factor(visit):
        return "ended"  # meanwhile; the way leads to the sign-in page, or back to this one
    limiting.spend(limiting.VERIFICATION, address)
    credentials.request_email_change(audit.USER, user, address)
    return "asked"
