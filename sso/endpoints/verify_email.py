"""The page that a mailed link leads to: whether an address, old or new, is the user's own."""

from flask import redirect, request, url_for
from flask_babel import gettext
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import mail_pages, page
from sso.endpoints.forms import DecisionForm
from sso.extensions import db
from sso.mfa import policy
from sso.models import User
from sso.services import credentials, mail_links
from sso.web import browser_session, errors

_PURPOSES = (mail_links.VERIFY, mail_links.CHANGE_EMAIL)


def verify_email() -> Response:
    """Ask for a click: mail scanners follow links, but press no buttons."""
    if "done" in request.args:
        return _page(None, None)
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
    return _page(form, token.address)


def _first(user: User) -> Response | None:
    """What comes before a new address: the account's own sign-in, and its second factor.

    The factor is asked for here as well: it may have been added after the address was asked for.
    Locks the user for the button.
    """
    visit = browser_session.current_session()
    if visit is None or visit.user.id != user.id:
        return _whose()
    locked = policy.lock(visit) if request.method == "POST" else visit
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
    """Who has the mailbox must be who asked: else a stranger's account would get the address."""
    return errors.page(
        gettext("Only the account that asked for this address can confirm it."),
        status=403,
        title=gettext("Please sign in first"),
        mend=gettext(
            "Sign in to that account in this browser, then open the link in the mail again. "
            "If you did not ask for this, ignore the mail."
        ),
        way_on=(gettext("Sign in"), url_for("pages.sign_in")),
    )


def _page(form: DecisionForm | None, address: str | None) -> Response:
    """With an address the question, without one the thanks."""
    return page.render("verify_email.html", form=form, address=address)
