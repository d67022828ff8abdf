"""Setting a password by a mailed link, after forgetting it or by invitation.

The answer is the same whether or not there is an account.
"""

from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, database
from sso.config.upstream.provider import Provider
from sso.crypto import passwords
from sso.endpoints import browser_session, mail_pages, page
from sso.endpoints.forms import EmailForm, NewPasswordForm
from sso.extensions import db
from sso.ratelimit import device_cookie
from sso.services import credentials, identities, mail_links
from sso.store import factors
from sso.web import errors, routing

_PURPOSES = (mail_links.RESET, mail_links.INVITE)


def forgotten_password() -> Response:
    """Asks for the email address, and mails a link to set a new password.

    The worker looks the address up later, so the answer does not reveal whether it has an account.
    """
    if elsewhere := mail_pages.without_foreign_request():
        return elsewhere
    form = EmailForm()
    if request.method == "POST" and form.validate():
        routing.spend(form.email.data or "")
        credentials.request_password_reset(audit.USER, form.email.data or "")
        db.session.commit()
        mail_pages.keep_pending()
        return redirect(url_for("pages.forgotten_password", sent=1), 303)
    if "sent" in request.args:
        return mail_pages.sent(
            gettext("Check your inbox"),
            gettext(
                "If this address has an account, we sent it an email with a link. The "
                "link is valid for one hour."
            ),
        )
    return page.render("forgotten_password.html", form=form)


def new_password() -> Response:
    """Page of a mailed link: sets the password. Only its button uses the link up."""
    secret = request.args.get("token", "")
    found = mail_links.find(secret, *_PURPOSES)
    if found is None or found[1] is None:
        return mail_pages.dead_link()
    if directory := identities.directory_of(found[1]):
        return _kept_elsewhere(directory)
    form = NewPasswordForm()
    form.about = (found[1].name, found[1].email)
    if request.method == "POST":
        db.session.commit()  # the transaction must not wait for the checks
    if request.method == "POST" and form.validate():
        fresh = passwords.hash_password(form.new_password.data or "", str(found[1].id))
        return _set(secret, fresh)
    invited = found[0].purpose == mail_links.INVITE
    return page.render("new_password.html", form=form, user_email=found[1].email, invited=invited)


def _set(secret: str, password_hash: str) -> Response:
    token, user = mail_links.redeem(secret, *_PURPOSES) or (None, None)
    if token is None or user is None:
        db.session.rollback()
        return mail_pages.dead_link()
    if directory := identities.directory_of(user):  # connected at this moment
        db.session.rollback()
        return _kept_elsewhere(directory)
    was_known = device_cookie.knows(user)
    credentials.reset_password(audit.USER, user, password_hash, token.purpose)
    browser_session.remember_link(user)
    db.session.commit()
    # No browser is known any more. This one must not be shut out by strangers who guess; but where
    # it has never shown a factor, it is known at the password alone.
    shown = was_known or not factors.has_any(database.session_connection(), user.id)
    device_cookie.remember(user, at_password=not shown)
    return mail_pages.to_sign_in("password", user.email)


def _kept_elsewhere(directory: Provider) -> Response:
    """For people of a directory: a password here would open the account without asking it."""
    return errors.page(
        gettext(
            "You sign in with %(provider)s. Change your password there.", provider=directory.name
        ),
        status=403,
        title=gettext("Your password is not kept here"),
        link=(gettext("Back to the sign-in page"), url_for("pages.sign_in")),
    )
