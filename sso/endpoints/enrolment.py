"""Before the first second factor: a code by email or an operator's link.

The password alone proves too little.
"""

from flask import redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import browser_session, page
from sso.endpoints.forms import DecisionForm, EmailedCodeForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.ratelimit import limiting
from sso.services import mail_links, second_factors
from sso.store import factors
from sso.store.sessions import CurrentSession
from sso.web import errors, routing

WRONG = N_("The code is wrong or has expired. After a few attempts you need a new one.")
TOO_MANY = N_("You have requested many codes recently. Please wait an hour, then try again.")


@login_required
def factor_code() -> Response:
    """Mails a code, and checks it; then the first second factor can be added in this session."""
    current, form = page.signed_in(), EmailedCodeForm()
    page.pending_request()
    if not policy.asks_for_code(current, factors.of_user(current.user.id)):
        return page.to_step("pages.factors")
    if form.validate_on_submit():
        return _send(form, current) if form.action.data == "send" else _take(form, current)
    return _page(form, current)


def _send(form: EmailedCodeForm, current: CurrentSession) -> Response:
    if not policy.is_fresh(current):
        return page.confirm_first("factor_code")
    routing.spend(current.user.email)
    if not policy.email_settled(current.user):
        return _page(form, current)
    is_sent = second_factors.request_emailed_code(audit.USER, current.user, current.session)
    db.session.commit()
    if not is_sent:
        return _page(form, current, TOO_MANY)
    return page.to_step("pages.factor_code", sent="1")


def _take(form: EmailedCodeForm, current: CurrentSession) -> Response:
    attempt, wait = page.try_once(current.user.email)
    if wait:
        return _page(form, current, limiting.waiting_time(wait), wait)
    locked = policy.lock(current)
    if locked is None or not policy.email_settled(locked.user):
        return page.confirm_first("factor_code")
    typed = form.code.data
    if not second_factors.accept_emailed_code(audit.USER, locked.user, locked.session.id, typed):
        db.session.commit()  # the try counts
        attempt.failed()
        return _page(form, locked, WRONG)
    attempt.passed()
    second_factors.allow_enrolment(audit.USER, locked.user, locked.session, "email")
    db.session.commit()
    return page.to_step("pages.factors")


def _page(
    form: EmailedCodeForm, current: CurrentSession, error: str | None = None, wait: int = 0
) -> Response:
    return page.render(
        "factor_code.html",
        wait=wait,
        form=form,
        user=current.user,
        settled=policy.email_settled(current.user),
        sent="sent" in request.args or error is not None,
        error=gettext(error) if error else None,
    )


def factor_link() -> Response:
    """Page of an operator's link: allows the first second factor, after a recent sign-in."""
    current = browser_session.current_session()
    found = mail_links.find(request.args.get("token", ""), mail_links.ENROLMENT)
    if found is None:
        return _dead()
    if current is None or found[1] is None or found[1].id != current.user.id:
        return _sign_in_first()
    if not policy.is_fresh(current):
        return _sign_in_first()
    form = DecisionForm()
    if form.validate_on_submit():
        locked = policy.lock(current)
        if locked is None:
            return _sign_in_first()
        if not mail_links.use(found[0], locked.user):
            db.session.rollback()
            return _dead()
        second_factors.allow_enrolment(audit.USER, locked.user, locked.session, "link")
        db.session.commit()
        return redirect(url_for("pages.factors"), 303)
    return page.render("factor_link.html", form=form, user=current.user)


def _dead() -> Response:
    return errors.page(
        gettext("It has been used, has expired, or is incomplete."),
        status=410,
        title=gettext("This link no longer works"),
        hint=gettext("Ask your administrator for a new link."),
    )


def _sign_in_first() -> Response:
    return errors.page(
        gettext(
            "The link works only while you are signed in to the account that it was created for."
        ),
        status=403,
        title=gettext("Please sign in first"),
        hint=gettext(
            "Sign in to that account in this browser, then open the link again right away."
        ),
        link=(gettext("Sign in"), url_for("pages.sign_in", back="factors")),
    )
