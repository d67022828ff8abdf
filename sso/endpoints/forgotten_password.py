"""Asking for a link to set a new password. The answer is the same, whoever asks for whom."""

from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import mail_pages, page
from sso.endpoints.mail_forms import AddressForm
from sso.extensions import db
from sso.ratelimit import limiting
from sso.services import credentials


def forgotten_password() -> Response:
    """Ask for the address; nobody looks it up before the worker does, out of sight."""
    if elsewhere := mail_pages.without_foreign_request():
        return elsewhere
    form = AddressForm()
    if request.method == "POST" and form.validate():
        limiting.spend(limiting.PASSWORD_RESET, form.email.data or "")
        credentials.request_password_reset(audit.USER, form.email.data or "")
        db.session.commit()
        mail_pages.keep_waiting()
        return redirect(url_for("pages.forgotten_password", sent=1), 303)
    if "sent" in request.args:
        return mail_pages.sent(
            gettext("Look into your mailbox"),
            gettext(
                "If there is an account with this address, a mail with a link is on its way. "
                "The link works for an hour."
            ),
        )
    return page.render("forgotten_password.html", form=form)
