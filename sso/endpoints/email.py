"""The email address of an account: how it is changed, and the page of the link that verifies it."""

from flask import redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import browser_session, mail_pages, page
from sso.endpoints.forms import ChangeEmailForm, DecisionForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.models import User
from sso.services import credentials, mail_links
from sso.store.sessions import CurrentSession
from sso.web import errors, routing

_PURPOSES = (mail_links.VERIFY, mail_links.CHANGE_EMAIL)
_DONE = {
    "asked": N_(
        "We sent an email to the new address. The change takes effect when you "
        "open its link and confirm."
    ),
    "again": N_("We sent an email to your address."),
}


@login_required
def account_email() -> Response:
    """Changes the email address: asks for the password, and mails a link to the new address."""
    current = page.signed_in()
    form, done = ChangeEmailForm(), None
    if request.method == "POST":
        if form.action.data == "verify_again":
            done = _verify_again(current)
        elif policy.lacks_second_factor(current):
            done = "confirm"
        elif form.validate():
            done = _change(current, form)
        if done == "confirm":
            return redirect(url_for("pages.second_factor", back="email"), 303)
        if done:
            db.session.commit()
            return redirect(url_for("pages.account_email", done=done), 303)
    return page.render(
        "account_email.html",
        form=form,
        user=current.user,
        lacks_second_factor=policy.lacks_second_factor(current),
        done=_DONE.get(request.args.get("done", "")),
    )


def _verify_again(current: CurrentSession) -> str:
    routing.spend(current.user.email)
    if not current.user.email_verified:
        credentials.request_verification(audit.USER, current.user)
    return "again"


def _change(current: CurrentSession, form: ChangeEmailForm) -> str | None:
    user, email = current.user, form.email.data or ""
    if email == user.email:
        form.email.errors = [N_("This is already your address.")]
        return None
    if not page.is_password_right(
        current,
        form.password,
        N_("The password is wrong."),
        Event.EMAIL_CHANGE_FAILED,
        "password",
    ):
        return None
    if policy.lock(current) is None or policy.lacks_second_factor(current):
        return "ended"  # meanwhile; the way leads to the sign-in page, or back to this one
    routing.spend(email)
    credentials.request_email_change(audit.USER, user, email)
    return "asked"


def verify_email() -> Response:
    """Page of a mailed link: confirms the email address.

    Its button does it: mail scanners follow links, but press no buttons.
    """
    if "done" in request.args:
        return page.render("verify_email.html", email=None)
    found = mail_links.find(request.args.get("token", ""), *_PURPOSES)
    token, user = found or (None, None)
    if token is None or user is None:
        return mail_pages.dead_link("pages.account_email")
    if token.purpose == mail_links.CHANGE_EMAIL and (first := _first(user)):
        return first
    form = DecisionForm()
    if form.validate_on_submit():
        try:
            if not mail_links.use(token, user):
                raise LookupError
            if token.address != user.email:
                credentials.change_email(audit.USER, user, token.address)
            credentials.verify_email(audit.USER, user)
        except (LookupError, IntegrityError):  # used meanwhile, or another user has the address
            db.session.rollback()
            return mail_pages.dead_link("pages.account_email")
        db.session.commit()
        return redirect(url_for("pages.verify_email", done=1), 303)
    return page.render("verify_email.html", form=form, email=token.address)


def _first(user: User) -> Response | None:
    """A new address needs a sign-in to the account, and its second factor; else what to do first.

    The factor may have been added after the change was requested. A POST locks the user.
    """
    current = browser_session.current_session()
    if current is None or current.user.id != user.id:
        return _whose()
    locked = policy.lock(current) if request.method == "POST" else current
    if locked is None:
        db.session.rollback()
        return redirect(_here("pages.verify_email"), 303)
    if policy.lacks_second_factor(locked):
        db.session.rollback()
        return redirect(_here("pages.second_factor", back="new_email"), 303)
    return None


def _here(endpoint: str, back: str | None = None) -> str:
    return url_for(endpoint, token=request.args.get("token", ""), back=back)


def _whose() -> Response:
    """The mailbox's owner must have asked, or a stranger's account would get the address."""
    return errors.page(
        gettext("Only the account that asked for this address can confirm it."),
        status=403,
        title=gettext("Please sign in first"),
        hint=gettext(
            "Sign in to that account in this browser, then open the link in the email"
            " again. If you did not request this, ignore the email."
        ),
        link=(gettext("Sign in"), url_for("pages.sign_in")),
    )
