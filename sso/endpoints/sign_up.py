"""Making an account oneself, where `SSO_SIGN_UP` allows it: first the mail, then the account.

Before the link from the mail is followed there is no account, so that a flood of sign-ups fills
no table of users, and the page never tells whether an address is known.
"""

from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, context
from sso.config import email_addresses
from sso.crypto import passwords
from sso.endpoints import browser_session, mail_pages, page, pending_identity
from sso.endpoints.forms import NewAccountForm, SignUpForm
from sso.extensions import db
from sso.i18n import N_
from sso.ratelimit import device_cookie
from sso.services import accounts, credentials, mail_links
from sso.services.checks import RegistrationError
from sso.web import routing


def sign_up() -> Response:
    """Sign-up: asks for the email address, and mails a link to it."""
    allowed = context.settings().sign_up
    waiting = pending_identity.waiting()
    by_provider = waiting is not None and waiting[0].sign_up
    if allowed == "off" and not by_provider:
        abort(404)
    if elsewhere := mail_pages.without_foreign_request():
        return elsewhere
    form = SignUpForm()
    if request.method == "POST" and form.validate():
        email = form.email.data or ""
        if _may(email):
            routing.spend(email)
            credentials.request_sign_up(audit.USER, email)
            db.session.commit()
            mail_pages.keep_pending()
            mail_pages.note_sign_up(email)
            return redirect(url_for("pages.sign_up", sent=1), 303)
        form.email.errors = [
            N_("You cannot sign up with this address. The allowed domains are listed above.")
        ]
    if "sent" in request.args:
        return mail_pages.sent(
            gettext("Check your inbox"),
            gettext("We sent you an email. Its link is valid for one hour."),
        )
    domains = [] if allowed == "open" or by_provider else allowed.split()
    if request.method == "GET" and by_provider and waiting:
        form.email.data = waiting[1].email
    return page.render("sign_up.html", form=form, domains=domains)


def complete_sign_up() -> Response:
    """Page of a mailed link: asks for name and password, and creates the account.

    The browser in which the link was requested is signed in, any other one asks for the password.
    """
    secret = request.args.get("token", "")
    found = mail_links.find(secret, mail_links.SIGN_UP)
    if found is None or not _may(found[0].address):
        return mail_pages.dead_link("pages.sign_up")
    form = NewAccountForm()
    form.about = (form.name.data or "", found[0].address)
    if request.method == "POST":
        db.session.commit()  # the transaction must not wait for the checks
    if request.method == "POST" and form.validate():
        fresh = passwords.hash_password(form.new_password.data or "", found[0].address)
        return _make(secret, form, fresh)
    return page.render("complete_sign_up.html", form=form, user_email=found[0].address)


def _may(email: str) -> bool:
    """Whether this email address may have an account.

    So it is, too, for a person whom a provider has authenticated in this browser, but whose address
    is not proven, where the operator lets that provider's people sign up.
    """
    waiting = pending_identity.waiting()
    if waiting and waiting[0].sign_up and waiting[0].covers(email):
        return True
    allowed = context.settings().sign_up
    if allowed in ("off", "open"):
        return allowed == "open"
    return email_addresses.domain(email) in allowed.split()


def _make(secret: str, form: NewAccountForm, password_hash: str) -> Response:
    token, _ = mail_links.redeem(secret, mail_links.SIGN_UP) or (None, None)
    try:
        if token is None:
            raise LookupError
        name = form.name.data or ""
        user = accounts.sign_up(
            audit.USER, email=token.address, name=name, password_hash=password_hash
        )
    except (LookupError, RegistrationError):  # used meanwhile, or the address is taken
        db.session.rollback()
        return mail_pages.dead_link("pages.sign_up")
    device_cookie.remember(user)
    browser_session.remember_link(user)
    if not mail_pages.is_signing_up(user.email):
        db.session.commit()
        return mail_pages.to_sign_in("signed_up", user.email)
    pending = mail_pages.take_pending()
    signed_in_at = browser_session.begin(user).auth_time
    db.session.commit()
    return page.after_sign_in(pending, signed_in_at)
