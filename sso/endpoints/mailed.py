"""The pages of mailed links: sign-up, a new password, the email address of an account.

The account is created only after the link from the mail is followed, so that a flood of sign-ups
creates no users. The response of a page is the same whether or not there is an account.
"""

from typing import Any

import flask
from flask import abort, redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso import audit, context, database
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.crypto import passwords, secrets
from sso.endpoints import browser_session, page
from sso.endpoints.attribute_form import SignUpValuesForm
from sso.endpoints.forms import (
    ChangeEmailForm,
    DecisionForm,
    EmailForm,
    NewAccountForm,
    NewPasswordForm,
    SignUpForm,
)
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.models import MailToken, User
from sso.ratelimit import device_cookie
from sso.services import accounts, attributes, credentials, identities, mail_links, terms
from sso.services.checks import Invalid
from sso.store import factors
from sso.store.sessions import CurrentSession
from sso.web import errors, pending_request, routing
from sso.web.pending_request import PendingRequest

_PENDING = "waiting"
_EMAIL, _ASKED_BY = "email", "signing_up"
# It has to fit into the browser's cookie with its other values (RFC 6265 §6.1: 4096 bytes).
_MAX_LENGTH = 2500


def sent(title: str, message: str) -> Response:
    """Render the page after requesting a mail, which is the same whether or not one is sent."""
    again = url_for(request.endpoint or "pages.sign_in")
    return page.render("mail_sent.html", title=title, message=message, again_url=again)


def dead_link(endpoint: str = "pages.forgotten_password") -> Response:
    """Render the page for a link that is unknown, used, expired or no longer valid.

    `endpoint`: the endpoint of the page that mails a new one.
    """
    return errors.page(
        gettext("It has been used, has expired, or is incomplete."),
        status=410,
        title=gettext("This link no longer works"),
        hint=gettext("Request a new link."),
        link=(gettext("Get a new link"), url_for(endpoint)),
    )


def keep_pending() -> None:
    """Store the pending authorization request in this browser until `take_pending`.

    Call this when the user submits the form, never when a page is opened: a link on another site
    could leave its request behind. It replaces an earlier one.

    The mailed link does not carry the request: in another browser, it would lead to an application
    that does not know it.
    """
    signed = request.args.get("resume", "")
    flask.session.pop(_PENDING, None)
    if len(signed) <= _MAX_LENGTH and pending_request.verify(signed):
        flask.session[_PENDING] = signed


def without_foreign_request() -> Response | None:
    """Redirect to the page without its pending request if another site linked to it.

    Only pages of this site link here with a request. Old browsers send no `Sec-Fetch-Site`; then
    the request stays.
    """
    if "resume" not in request.args or request.method != "GET":
        return None
    if request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin":
        return None
    return redirect(url_for(request.endpoint or "pages.sign_in"), 303)


def take_pending() -> PendingRequest | None:
    """Remove the pending request from this browser, and return it."""
    return pending_request.verify(flask.session.pop(_PENDING, None) or "")


def to_sign_in(notice: str, email: str) -> Response:
    """Redirect to the sign-in page with the browser's pending request and the email filled in.

    The email is not in the URL, because it must not get into logs.
    """
    pending = take_pending()
    flask.session[_EMAIL] = email
    resume = pending_request.sign(pending) if pending else None
    return redirect(url_for("pages.sign_in", resume=resume, notice=notice), 303)


def email_to_fill_in() -> str | None:
    """Return the email whose password was just set in this browser."""
    email: str | None = flask.session.get(_EMAIL)
    return email


def note_sign_up(email: str) -> None:
    """Store in this browser that it requested an account for an email."""
    flask.session[_ASKED_BY] = device_cookie.mark(email)


def is_signing_up(email: str) -> bool:
    """Return whether this browser requested an account for the email.

    Otherwise a stranger may have sent the link, to make others use their account.
    """
    return secrets.is_equal(flask.session.get(_ASKED_BY) or "", device_cookie.mark(email))


def sign_up() -> Response:
    """Ask for the email address of a new account, and mail a link to it."""
    allowed = context.settings().sign_up
    waiting = browser_session.pending_identity()
    by_provider = waiting is not None and waiting[0].sign_up
    if allowed == "off" and not by_provider:
        abort(404)
    if elsewhere := without_foreign_request():
        return elsewhere
    form = SignUpForm()
    if form.validate_on_submit():
        email = form.email.data or ""
        if _may(email):
            routing.spend(email)
            credentials.request_sign_up(audit.USER, email)
            keep_pending()
            note_sign_up(email)
            return page.done("pages.sign_up", sent="1")
        form.email.errors = [
            N_("You cannot sign up with this address.")
            if by_provider  # then no domains are listed
            else N_("You cannot sign up with this address. The allowed domains are listed above.")
        ]
    if "sent" in request.args:
        return sent(
            gettext("Check your inbox"),
            gettext("We sent you an email. Its link is valid for one hour."),
        )
    domains = [] if allowed == "open" or by_provider else allowed.split()
    if request.method == "GET" and by_provider and waiting:
        form.email.data = waiting[1].email
    return page.render("sign_up.html", form=form, domains=domains)


def complete_sign_up() -> Response:
    """Ask for name and password after a mailed link, and create the account.

    The browser that requested the link is signed in; any other one has to sign in.
    """
    secret = request.args.get("token", "")
    link = mail_links.find(secret, mail_links.SIGN_UP)
    if link is None or not _may(link[0].address):
        return dead_link("pages.sign_up")
    form = NewAccountForm()
    form.about = (form.name.data or "", link[0].address)
    form.terms_version = terms.missing(None)
    values_form = SignUpValuesForm.asked(attributes.asked_at_sign_up(None))
    if request.method == "POST":
        db.session.commit()  # the transaction must not wait for the checks
    if form.validate_on_submit() & values_form.validate_on_submit():
        fresh = passwords.hash_password(form.new_password.data or "", link[0].address)
        return _make(secret, form, values_form.values(), fresh)
    return page.render(
        "complete_sign_up.html", form=form, values_form=values_form, user_email=link[0].address
    )


def _may(email: str) -> bool:
    """Return whether this email address may get an account.

    An address also may if an identity of a provider that allows sign-up waits in this browser, and
    the provider covers the address.
    """
    waiting = browser_session.pending_identity()
    if waiting and waiting[0].sign_up and waiting[0].covers(email):
        return True
    allowed = context.settings().sign_up
    if allowed in ("off", "open"):
        return allowed == "open"
    return email_addresses.domain(email) in allowed.split()


def _make(
    secret: str, form: NewAccountForm, values: dict[str, Any], password_hash: str
) -> Response:
    attributes.hold(True)
    token, _ = mail_links.redeem(secret, mail_links.SIGN_UP) or (None, None)
    try:
        if token is None:
            raise LookupError
        name = form.name.data or ""
        user = accounts.sign_up(
            audit.USER, email=token.address, name=name, password_hash=password_hash
        )
        if form.terms_version:
            terms.accept(audit.USER, user, form.terms_version)
    except (LookupError, Invalid):  # used meanwhile, or the address is taken
        db.session.rollback()
        return dead_link("pages.sign_up")
    if not _fill(user, values):
        return redirect(_here("pages.complete_sign_up"), 303)
    device_cookie.remember(user)
    browser_session.remember_link(user)
    if not is_signing_up(user.email):
        db.session.commit()
        return to_sign_in("signed_up", user.email)
    pending = take_pending()
    signed_in_at = browser_session.begin(user).auth_time
    db.session.commit()
    return page.after_sign_in(pending, signed_in_at)


def _fill(user: User, values: dict[str, Any]) -> bool:
    """Set what a sign-up or an invitation asks for; roll back if other attributes are by now."""
    try:
        attributes.set_at_sign_up(audit.USER, user, values)
    except Invalid:
        db.session.rollback()
        return False
    return True


_PASSWORD_PURPOSES = (mail_links.RESET, mail_links.INVITE)


def forgotten_password() -> Response:
    """Ask for the email address, and mail a link to set a new password.

    The worker looks the address up later, so the response does not reveal whether it has an
    account.
    """
    if elsewhere := without_foreign_request():
        return elsewhere
    form = EmailForm()
    if form.validate_on_submit():
        routing.spend(form.email.data or "")
        credentials.request_password_reset(audit.USER, form.email.data or "")
        keep_pending()
        return page.done("pages.forgotten_password", sent="1")
    if "sent" in request.args:
        return sent(
            gettext("Check your inbox"),
            gettext(
                "If this address has an account, we sent it an email with a link. The "
                "link is valid for one hour."
            ),
        )
    return page.render("forgotten_password.html", form=form)


def new_password() -> Response:
    """Set the password after a mailed link. Only the button uses the link up."""
    secret = request.args.get("token", "")
    link = mail_links.find(secret, *_PASSWORD_PURPOSES)
    if link is None or link[1] is None:
        return dead_link()
    if directory := identities.directory_of(link[1]):
        return _kept_elsewhere(directory)
    form = NewPasswordForm()
    form.about = (link[1].name, link[1].email)
    is_first = _is_first(link[0], link[1])
    form.terms_version = terms.missing(link[1]) if is_first else None
    asked = attributes.asked_at_sign_up(link[1]) if is_first else []
    values_form = SignUpValuesForm.asked(asked)
    if request.method == "POST":
        db.session.commit()  # the transaction must not wait for the checks
    if form.validate_on_submit() & values_form.validate_on_submit():
        fresh = passwords.hash_password(form.new_password.data or "", str(link[1].id))
        return _set(secret, fresh, form.terms_version, values_form.values())
    return page.render(
        "new_password.html",
        form=form,
        values_form=values_form,
        user_email=link[1].email,
        invited=link[0].purpose == mail_links.INVITE,
    )


def _is_first(token: MailToken, user: User) -> bool:
    """Return whether the password completes an account, which asks for terms and attributes.

    Invited people may have asked for a new password instead.
    """
    return token.purpose == mail_links.INVITE or user.password_hash is None


def _set(
    secret: str, password_hash: str, terms_version: str | None, values: dict[str, Any]
) -> Response:
    attributes.hold(True)
    token, user = mail_links.redeem(secret, *_PASSWORD_PURPOSES) or (None, None)
    if token is None or user is None:
        db.session.rollback()
        return dead_link()
    if directory := identities.directory_of(user):  # connected at this moment
        db.session.rollback()
        return _kept_elsewhere(directory)
    was_known, is_first = device_cookie.knows(user), _is_first(token, user)
    credentials.reset_password(audit.USER, user, password_hash, token.purpose)
    if is_first and not _fill(user, values):
        return redirect(_here("pages.new_password"), 303)
    if terms_version:
        terms.accept(audit.USER, user, terms_version)
    browser_session.remember_link(user)
    db.session.commit()
    # All known browsers were forgotten. This one is remembered, so that strangers who guess do not
    # block it; if it has never used a factor, it is known at the password alone.
    is_known = was_known or not factors.has_any(database.session_connection(), user.id)
    device_cookie.remember(user, at_password=not is_known)
    return to_sign_in("password", user.email)


def _kept_elsewhere(directory: Provider) -> Response:
    """Render the page for users of a directory, who must not have a password here."""
    return errors.page(
        gettext(
            "You sign in with %(provider)s. Change your password there.", provider=directory.name
        ),
        status=403,
        title=gettext("Your password is not kept here"),
        link=(gettext("Back to the sign-in page"), url_for("pages.sign_in")),
    )


_EMAIL_PURPOSES = (mail_links.VERIFY, mail_links.CHANGE_EMAIL)
_DONE = {
    "asked": N_(
        "We sent an email to the new address. The change takes effect when you "
        "open its link and confirm."
    ),
    "again": N_("We sent an email to your address."),
}


@login_required
def account_email() -> Response:
    """Change the email address: ask for the password, and mail a link to the new address."""
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
            return page.done("pages.account_email", done=done)
    return page.render(
        "account_email.html",
        form=form,
        user=current.user,
        lacks_second_factor=policy.lacks_second_factor(current),
        done=page.done_text(_DONE),
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
        return "ended"  # the redirect leads to the sign-in page, or back to this one
    routing.spend(email)
    credentials.request_email_change(audit.USER, user, email)
    return "asked"


def verify_email() -> Response:
    """Confirm the email address after a mailed link.

    The user has to press a button: mail scanners follow links, but press no buttons.
    """
    if "done" in request.args:
        return page.render("verify_email.html", email=None)
    link = mail_links.find(request.args.get("token", ""), *_EMAIL_PURPOSES)
    token, user = link or (None, None)
    if token is None or user is None:
        return dead_link("pages.account_email")
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
            return dead_link("pages.account_email")
        return page.done("pages.verify_email", done="1")
    return page.render("verify_email.html", form=form, email=token.address)


def _first(user: User) -> Response | None:
    """Return the step before a new address is confirmed: a sign-in, or the second factor.

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
    """Render the page for a link of another account, which must not get this mailbox's address."""
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
