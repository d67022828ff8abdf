"""What the pages around mails share."""

import flask
from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.endpoints import page
from sso.web import errors, pending_request

_WAITING = "waiting"
# The browser's cookie has to hold it, beside what else is in there (RFC 6265 §6.1: 4096 bytes).
_MAX_WAITING = 2500


def sent(title: str, message: str) -> Response:
    """A mail is on its way, or would be: the same for every address."""
    again = url_for(request.endpoint or "pages.sign_in")
    return page.render("mail_sent.html", title=title, message=message, again_url=again)


def dead_link(another: str = "pages.forgotten_password") -> Response:
    """A link whose secret is unknown, used, too old, or bound to what is no longer so.

    `another`: the endpoint of the page where there is a new one.
    """
    return errors.page(
        gettext("It has been used, has expired, or is incomplete."),
        status=410,
        title=gettext("This link does not work any more"),
        mend=gettext("Ask for a new one."),
        way_on=(gettext("Get a new link"), url_for(another)),
    )


def keep_waiting() -> None:
    """Keep the authorization request that waits, in this browser, until `to_sign_in`.

    Called when the person sends the form, never when a page is opened: a link of another site
    would leave its request behind. What waited before is forgotten.

    Not in the link: opened in another browser, the request would lead to an application that
    knows nothing of it.
    """
    sealed = request.args.get("resume", "")
    flask.session.pop(_WAITING, None)
    if len(sealed) <= _MAX_WAITING and pending_request.verify(sealed):
        flask.session[_WAITING] = sealed


def without_foreign_request() -> Response | None:
    """The same page without a waiting request, if a link of another site brought it.

    Only our own pages lead here with one; without `Sec-Fetch-Site` (old browsers) it stays.
    """
    if "resume" not in request.args or request.method != "GET":
        return None
    if request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin":
        return None
    return redirect(url_for(request.endpoint or "pages.sign_in"), 303)


def to_sign_in(notice: str) -> Response:
    """On to the sign-in page, with the request that waits in this browser."""
    sealed = flask.session.pop(_WAITING, None)
    resume = sealed if sealed and pending_request.verify(sealed) else None
    return redirect(url_for("pages.sign_in", resume=resume, notice=notice), 303)
