"""What the pages around mails share."""

import flask
from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.crypto import secrets
from sso.endpoints import page
from sso.ratelimit import device_cookie
from sso.web import errors, pending_request
from sso.web.pending_request import PendingRequest

_PENDING = "waiting"
_EMAIL, _ASKED_BY = "email", "signing_up"
# The browser's cookie has to hold it, beside what else is in there (RFC 6265 §6.1: 4096 bytes).
_MAX_LENGTH = 2500


def sent(title: str, message: str) -> Response:
    """The page after a mail was requested: the same whether or not one is sent."""
    again = url_for(request.endpoint or "pages.sign_in")
    return page.render("mail_sent.html", title=title, message=message, again_url=again)


def dead_link(another: str = "pages.forgotten_password") -> Response:
    """The page for a link that is unknown, used, expired, or void after a change of the account.

    `another`: the endpoint of the page that mails a new one.
    """
    return errors.page(
        gettext("It has been used, has expired, or is incomplete."),
        status=410,
        title=gettext("This link no longer works"),
        hint=gettext("Request a new link."),
        link=(gettext("Get a new link"), url_for(another)),
    )


def keep_pending() -> None:
    """Keep the pending authorization request in this browser until `take_pending`.

    Called when the person submits the form, never when a page is opened: a link of another site
    would leave its request behind. An earlier one is forgotten.

    Not in the link: opened in another browser, the request would lead to an application that
    knows nothing of it.
    """
    signed = request.args.get("resume", "")
    flask.session.pop(_PENDING, None)
    if len(signed) <= _MAX_LENGTH and pending_request.verify(signed):
        flask.session[_PENDING] = signed


def without_foreign_request() -> Response | None:
    """The same page without its pending request, if a link of another site brought it.

    Only our own pages lead here with one; without `Sec-Fetch-Site` (old browsers) it stays.
    """
    if "resume" not in request.args or request.method != "GET":
        return None
    if request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin":
        return None
    return redirect(url_for(request.endpoint or "pages.sign_in"), 303)


def take_pending() -> PendingRequest | None:
    """The pending request of this browser, which forgets it."""
    return pending_request.verify(flask.session.pop(_PENDING, None) or "")


def to_sign_in(notice: str, email: str) -> Response:
    """On to the sign-in page, with the pending request of this browser, and the email filled in.

    Not in the URL: an email address must not get into logs.
    """
    pending = take_pending()
    flask.session[_EMAIL] = email
    resume = pending_request.sign(pending) if pending else None
    return redirect(url_for("pages.sign_in", resume=resume, notice=notice), 303)


def email_to_fill_in() -> str | None:
    """The address for which a password was set in this browser just now."""
    found: str | None = flask.session.get(_EMAIL)
    return found


def note_sign_up(email: str) -> None:
    """Note in this browser who asks for an account in it."""
    flask.session[_ASKED_BY] = device_cookie.mark(email)


def is_signing_up(email: str) -> bool:
    """Whether this address asked for an account in this very browser.

    The link may be a stranger's, who wants others to use an account of his.
    """
    return secrets.is_equal(flask.session.get(_ASKED_BY) or "", device_cookie.mark(email))
